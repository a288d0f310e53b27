"""Dynamic autograd: the tape (`graph`), the engine that walks it, gradient modes and views' histories."""
