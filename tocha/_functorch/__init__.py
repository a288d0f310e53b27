"""torch._functorch: what backends import from there (torch docs: custom backends)."""
