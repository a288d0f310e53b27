"""torch.hub: models and checkpoints from the net or a folder (torch docs: torch.hub). Downloads use the standard library."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from typing import Any
from urllib.parse import urlparse

from tocha import serialization

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
ENV_TORCH_HOME, ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR = "TORCH_HOME", "XDG_CACHE_HOME", "~/.cache"
READ_DATA_CHUNK = 128 * 1024
_dir: str | None = None


class progress_bar:
    """How much was downloaded, on stderr; `update(n)` in a with block, as tqdm."""

    def __init__(self, total: int | None = None, disable: bool = False, **unused: Any) -> None:
        self.total, self.disable, self.n = total, disable, 0

    def update(self, n: int) -> None:
        """n more bytes."""
        self.n += n
        if not self.disable:
            done = f"{100 * self.n / self.total:.1f}%" if self.total else f"{self.n} bytes"
            sys.stderr.write(f"\r{done}")
            sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if not self.disable:
            sys.stderr.write("\n")

    def __enter__(self) -> progress_bar:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


tqdm = progress_bar


def _get_torch_home() -> str:
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.getenv(ENV_TORCH_HOME, os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder downloads go to: what `set_dir` set, else `hub` in $TORCH_HOME or in the user's cache."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use another folder for downloads."""
    global _dir
    _dir = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download to `dst`, which appears only when complete and right; RuntimeError if the SHA-256 doesn't begin with
    `hash_prefix`, or if the address can't be opened."""
    dst = os.path.expanduser(dst)
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "torch.hub"}))
    except OSError as error:
        raise RuntimeError(f"torch.hub: {url} can't be opened: {error}. Download it elsewhere and give its local path") from error
    length = response.headers.get("Content-Length")
    digest = hashlib.sha256() if hash_prefix is not None else None
    handle, partial = tempfile.mkstemp(suffix=".partial", dir=os.path.dirname(os.path.abspath(dst)))
    try:
        with response, os.fdopen(handle, "wb") as file, progress_bar(int(length) if length else None, not progress) as bar:
            while chunk := response.read(READ_DATA_CHUNK):
                file.write(chunk)
                if digest is not None:
                    digest.update(chunk)
                bar.update(len(chunk))
        if digest is not None and not digest.hexdigest().startswith(hash_prefix or ""):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
        os.chmod(partial, 0o644)
        os.replace(partial, dst)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
    file_name: str | None = None, weights_only: bool = True,
) -> Any:  # fmt: skip
    """The checkpoint at `url`, downloaded once into `model_dir` (default: `checkpoints` in `get_dir()`). `check_hash`: the
    file's name ends in the beginning of its SHA-256, as in resnet18-f37072fd.pth."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress=progress)
    if zipfile.is_zipfile(path) and not _is_checkpoint(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise RuntimeError("Only one file(not dir) is allowed in the zipfile")
            archive.extractall(folder)
        path = os.path.join(folder, members[0].filename)
    return serialization.load(path, map_location=map_location, weights_only=weights_only)


def _is_checkpoint(path: str) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("data.pkl") for name in archive.namelist())


# ---- entry points of repositories


def _parse_repo(github: str) -> tuple[str, str, str | None]:
    repo, _, ref = github.partition(":")
    owner, slash, name = repo.partition("/")
    if not slash:
        raise ValueError(f"torch.hub: expected 'owner/repository[:ref]', got {github!r}")
    return owner, name, ref or None


def _fetch_repo(github: str, force_reload: bool, verbose: bool) -> str:
    owner, name, ref = _parse_repo(github)
    ref = ref or "main"
    folder = os.path.join(get_dir(), "_".join((owner, name, ref.replace("/", "_"))))
    if os.path.exists(folder) and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {folder}\n")
        return folder
    os.makedirs(get_dir(), exist_ok=True)
    archive = os.path.join(get_dir(), f"{ref.replace('/', '_')}.zip")
    try:
        download_url_to_file(f"https://github.com/{owner}/{name}/zipball/{ref}", archive, progress=False)
        with tempfile.TemporaryDirectory(dir=get_dir()) as unpacked:
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(unpacked)
            (top,) = os.listdir(unpacked)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.move(os.path.join(unpacked, top), folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(archive)
    return folder


def _hubconf(folder: str) -> Any:
    path = os.path.join(folder, "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(folder)


def _folder(repo_or_dir: str, source: str, trust_repo: Any, force_reload: bool, verbose: bool) -> str:
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return repo_or_dir
    if trust_repo is not True:
        raise RuntimeError(
            f"torch.hub: code from {repo_or_dir} would be downloaded and run. If you trust it, pass trust_repo=True"
        )
    return _fetch_repo(repo_or_dir, force_reload, verbose)


def list(
    github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None, verbose: bool = True
) -> Any:
    """Names of a repository's entry points."""
    module = _hubconf(_folder(github, "local" if os.path.isdir(github) else "github", trust_repo, force_reload, verbose))
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(
    github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None
) -> str | None:
    """The docstring of an entry point."""
    module = _hubconf(_folder(github, "local" if os.path.isdir(github) else "github", trust_repo, force_reload, True))
    return _entry(module, model).__doc__


def _entry(module: Any, model: str) -> Any:
    missing = [name for name in getattr(module, "dependencies", ()) if name != "torch" and importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def load(
    repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = None, force_reload: bool = False,
    verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """What the entry point `model` of a repository's (or, with source 'local', a folder's) hubconf.py returns. Code from
    GitHub runs only with trust_repo=True."""
    folder = _folder(repo_or_dir, source, trust_repo, force_reload, verbose)
    sys.path.insert(0, folder)
    try:
        return _entry(_hubconf(folder), model)(*args, **kwargs)
    finally:
        sys.path.remove(folder)
