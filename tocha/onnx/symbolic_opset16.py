"""torch.onnx.symbolic_opset16: a place to look for symbolics of operator set 16; there are none."""
