"""Version of the package: the one place it is written (pyproject.toml reads it from here)."""

__version__ = "0.1.0"

# torch.version's other names; a pure-Python package is built against no toolkit.
debug = False
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version: str | None = None
