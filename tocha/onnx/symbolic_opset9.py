"""torch.onnx.symbolic_opset9: a place to look for symbolics of operator set 9; there are none."""
