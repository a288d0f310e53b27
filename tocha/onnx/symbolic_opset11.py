"""torch.onnx.symbolic_opset11: a place to look for symbolics of operator set 11; there are none."""
