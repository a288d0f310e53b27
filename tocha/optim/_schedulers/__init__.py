"""Learning-rate schedulers by kind; `optim.lr_scheduler` is the public place."""
