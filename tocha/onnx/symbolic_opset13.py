"""torch.onnx.symbolic_opset13: a place to look for symbolics of operator set 13; there are none."""
