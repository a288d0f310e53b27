"""Losses: ignored classes, weights, smoothing, empty batches, errors."""

import math

import pytest

import tocha as torch
import tocha.nn.functional as F

LOGITS = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
P0, P1 = 0.40760597, 1.0986123  # -log softmax at classes 2 and 0
INF = math.inf


@pytest.mark.parametrize("ignore", [-100, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_leaves_ignored_targets_out(ignore, dtype):
    x = LOGITS.clone().to(dtype).requires_grad_(True)
    loss = F.cross_entropy(x, torch.tensor([2, ignore]), ignore_index=ignore)
    assert loss.item() == pytest.approx(P0)
    loss.backward()
    assert x.grad[1].abs().sum().item() == 0.0
    assert x.grad[0].tolist() == pytest.approx([0.09003057, 0.24472848, -0.33475906])


def test_cross_entropy_weights_and_smoothing():
    w = torch.tensor([2.0, 1.0, 1.0])
    t = torch.tensor([2, 0])
    assert F.cross_entropy(LOGITS, t, w).item() == pytest.approx((P0 + 2 * P1) / 3)
    assert F.cross_entropy(LOGITS, t, w, reduction="none").tolist() == pytest.approx([P0, 2 * P1])
    smooth = F.cross_entropy(LOGITS, t, label_smoothing=0.3)
    soft = torch.tensor([[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    assert smooth.item() == pytest.approx(F.cross_entropy(LOGITS, soft).item())


def test_cross_entropy_of_all_ignored_and_of_nothing_is_nan():
    assert math.isnan(F.cross_entropy(LOGITS, torch.tensor([-100, -100])).item())
    assert math.isnan(F.cross_entropy(torch.ones(0, 3), torch.zeros(0, dtype=torch.int64)).item())
    assert F.cross_entropy(torch.ones(0, 3), torch.zeros(0, dtype=torch.int64), reduction="sum").item() == 0.0


def test_cross_entropy_of_images_and_of_one_sample():
    x = torch.zeros(2, 4, 3, 3)
    assert F.cross_entropy(x, torch.ones(2, 3, 3, dtype=torch.int64)).item() == pytest.approx(math.log(4))
    assert F.cross_entropy(torch.zeros(4), torch.tensor(2)).item() == pytest.approx(math.log(4))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: F.cross_entropy(LOGITS, torch.tensor([0, 3])), IndexError, "Target 3 is out of bounds"),
        (lambda: F.cross_entropy(LOGITS, torch.tensor([0, -1])), IndexError, "Target -1 is out of bounds"),
        (lambda: F.cross_entropy(LOGITS, torch.tensor([0])), ValueError, r"batch_size \(2\) to match target batch_size \(1\)"),
        (lambda: F.cross_entropy(LOGITS, torch.tensor([0, 1]), torch.ones(2)), RuntimeError, "all 3 classes"),
        (lambda: F.cross_entropy(LOGITS, torch.tensor([0, 1]), reduction="max"), ValueError, "max is not a valid value"),
        (lambda: F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0])), RuntimeError, "between 0 and 1"),
        (lambda: F.mse_loss(torch.ones(2), torch.ones(3)), RuntimeError, "must match the size"),
        (lambda: F.huber_loss(torch.ones(2), torch.ones(2), delta=0.0), RuntimeError, "non-positive"),
        (lambda: F.gaussian_nll_loss(torch.ones(2), torch.ones(2), -torch.ones(2)), ValueError, "negative"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bad_input_is_refused_in_words(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_binary_cross_entropy_at_certainty():
    x = torch.tensor([0.0, 1.0, 0.0], requires_grad=True)
    losses = F.binary_cross_entropy(x, torch.tensor([1.0, 1.0, 0.0]), reduction="none")
    assert losses.tolist() == [100.0, 0.0, 0.0]
    big = torch.tensor([1000.0, -1000.0], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(big, torch.tensor([0.0, 1.0]))
    assert loss.item() == 1000.0
    loss.backward()
    assert big.grad.tolist() == [0.5, -0.5]


def test_kl_div_counts_zero_targets_as_zero():
    x = torch.tensor([[0.5, 0.5]]).log()
    assert F.kl_div(x, torch.tensor([[1.0, 0.0]]), reduction="batchmean").item() == pytest.approx(math.log(2))


def test_ctc_by_hand_and_infinite():
    half = torch.tensor([0.5, 0.5]).log()
    x = half.expand(2, 1, 2).clone().requires_grad_(True)  # two steps, blank and one label
    loss = F.ctc_loss(x, torch.tensor([[1]]), (2,), (1,), reduction="none")
    assert loss.item() == pytest.approx(-math.log(0.75))  # label twice, or once beside a blank
    long = torch.tensor([[1, 1]])  # a repeated label needs a blank between: three steps
    assert F.ctc_loss(x, long, (2,), (2,), reduction="none").item() == math.inf
    zeroed = F.ctc_loss(x, long, (2,), (2,), zero_infinity=True)
    zeroed.backward()
    assert zeroed.item() == 0.0 and x.grad.abs().sum().item() == 0.0


def test_margin_losses():
    x = torch.tensor([[0.1, 0.2, 0.4, 0.8]])
    assert F.multi_margin_loss(x, torch.tensor([3])).item() == pytest.approx(0.25 * (0.3 + 0.4 + 0.6))
    assert F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1]])).item() == pytest.approx(0.85)
    anchor, positive, negative = torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    assert F.triplet_margin_loss(anchor, positive, negative, margin=6.0).item() == pytest.approx(1.0, abs=1e-4)
    assert F.cosine_embedding_loss(torch.ones(1, 2), -torch.ones(1, 2), torch.tensor([1])).item() == pytest.approx(2.0)


@pytest.mark.parametrize("target", [1.5, -0.1, math.nan])
def test_binary_cross_entropy_checks_targets(target):
    with pytest.raises(RuntimeError, match="target should be between 0 and 1"):
        F.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([target]))


@pytest.mark.parametrize("loss", [F.smooth_l1_loss, F.huber_loss])
def test_gradient_of_robust_losses_at_infinite_differences(loss):
    x = torch.tensor([0.0, 0.0, 0.5], requires_grad=True)
    loss(x, torch.tensor([math.inf, -math.inf, 0.0]), reduction="sum").backward()
    assert x.grad.tolist() == [-1, 1, 0.5]


@pytest.mark.parametrize("count", [1, 5000])
def test_near_and_far_of_smooth_losses(count):
    x = torch.tensor([0.0, 0.25, -0.5, 2.0, -3.0, INF]).repeat(count).requires_grad_()
    y = torch.zeros(6 * count, requires_grad=True)
    F.smooth_l1_loss(x, y, reduction="none", beta=0.5).sum().backward()
    assert F.smooth_l1_loss(x, y, reduction="none", beta=0.5)[:6].tolist() == [0, 0.0625, 0.25, 1.75, 2.75, INF]
    assert x.grad[:6].tolist() == [0, 0.5, -1, 1, -1, 1] and torch.equal(y.grad, -x.grad)
    x.grad = None
    F.huber_loss(x, y, reduction="none", delta=2.0).sum().backward()
    assert F.huber_loss(x, y, reduction="none", delta=2.0)[:6].tolist() == [0, 0.03125, 0.125, 2, 4, INF]
    assert x.grad[:6].tolist() == [0, 0.25, -0.5, 2, -2, 2]
    with pytest.raises(NotImplementedError):
        F.smooth_l1_loss(torch.tensor([3]), torch.tensor([1]))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weight", [None, torch.ones(3)])
def test_mean_of_no_targets_has_gradient_zero(weight, compiled):
    def losses(x, target):
        likelihood = F.nll_loss(x, target, weight)
        return likelihood, F.cross_entropy(x, target, weight), F.cross_entropy(x, target, weight, label_smoothing=0.1)

    run = torch.compile(losses) if compiled else losses
    for shape in ((3,), (4, 3)) if compiled else ((3,), (4, 3), (2, 3, 2), (2, 3, 2, 2), (2, 3, 2, 2, 2)):
        target = torch.full(() if len(shape) == 1 else shape[:1] + shape[2:], -100)
        for k in range(3):
            x = torch.zeros(shape, requires_grad=True)
            loss = run(x, target)[k]
            loss.backward()
            assert math.isnan(loss.item()) and torch.equal(x.grad, torch.zeros(shape))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_recorded_gradient_of_a_mean_of_no_targets(smoothing):
    x, target = torch.zeros(4, 3, requires_grad=True), torch.full((4,), -100)
    loss = F.cross_entropy(x, target, label_smoothing=smoothing)
    assert torch.autograd.grad(loss, x, create_graph=True)[0].tolist() == [[0.0] * 3] * 4


def test_classes_of_weight_zero_count_as_zero_over_zero():
    x = torch.zeros(2, 3, requires_grad=True)
    F.cross_entropy(x, torch.tensor([0, -100]), torch.zeros(3)).backward()
    assert x.grad[0].isnan().all() and x.grad[1].tolist() == [0.0] * 3
