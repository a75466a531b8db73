"""Parts of malicious files: pickles that run code, arrays that claim any length, archives with any names."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path


class Marker:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def npy(shape, dtype="<f8", body=b""):
    header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def zipped(name, content):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return target.getvalue()
