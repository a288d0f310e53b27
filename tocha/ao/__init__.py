"""torch.ao: quantisation's names."""
