"""Damage to the folder of a run: files that are missing, cut, changed or of another kind."""

import io
import json
import os
import random
import shutil
from pathlib import Path

from fuzzing.values import CELLS, FRAMES, JSON_VALUES, STRAY


def damages(rng, base: Path) -> list[list]:
    """What to do to the folder of a run: an operation, a file, and what else it takes."""
    paths = sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())
    found = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        path = rng.choice(paths)
        if rng.random() < 0.4:
            path = rng.choice([p for p in paths if "rows" not in p and ".lock" not in p])
        found.append(_damage(rng, base, path))
    return found


def _damage(rng, base, path) -> list:
    structured = {".json": "json", ".npz": "outline", ".pt": "model", ".txt": "table"}
    kind = "json" if path.endswith("latest") else structured.get(Path(path).suffix)
    if kind == "table" and not path.endswith("progress.txt"):
        kind = None
    if kind and rng.random() < 0.6:
        return [kind, path, rng.randrange(2**32)]
    size = (base / path).stat().st_size
    plain = (
        ["delete", path],
        ["empty", path],
        ["truncate", path, rng.randrange(size + 1)],
        ["append", path, rng.randrange(2**32)],
        ["flip", path, rng.randrange(2**32)],
        ["garbage", path, rng.randrange(2**32)],
        ["folder", path],
        ["loop", path],
        ["nowhere", path],
        ["closed", path],
        ["pipe", path],
        ["swap", path, rng.choice(sorted(str(p.relative_to(base)) for p in base.rglob("*")))],
        ["closed", str(Path(path).parent)],
        ["delete", str(Path(path).parent)],
        ["stray", rng.choice(STRAY), rng.randrange(2**32)],
        ["stray", rng.choice(STRAY), 0],
    )
    return rng.choice(plain)


def do_damage(folder: Path, operation: str, path: str, more=None):
    """Damage one file of a run."""
    target, rng = folder / path, random.Random(more)
    if operation == "stray":
        if not target.exists() and target.parent.is_dir() | (not target.parent.exists()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(rng.randbytes(100))
        return
    if operation == "swap":
        other = folder / str(more)
        if target.is_file() and other.is_file():
            ours, theirs = target.read_bytes(), other.read_bytes()
            target.write_bytes(theirs), other.write_bytes(ours)
        return
    if not target.is_file() and operation not in ("delete", "closed") or not target.exists():
        return  # an earlier damage has removed it
    if operation == "closed":
        target.chmod(0)
    elif operation in ("delete", "folder", "loop", "nowhere", "pipe"):
        _replace(target, operation)
    else:
        data = target.read_bytes()
        try:
            new = _edit(rng, data, operation, more)
        except Exception:  # it was damaged before, so that this damage does not fit any more
            new = data[1:]
        target.write_bytes(new)


def _replace(target, operation):
    """Put something else where a file was, or nothing."""
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    if operation == "folder":
        target.mkdir()
    elif operation == "pipe":
        os.mkfifo(target)
    elif operation != "delete":
        target.symlink_to(target.name if operation == "loop" else "nowhere")


def _edit(rng, data, operation, more) -> bytes:
    """The contents of a file, changed."""
    edits = dict(
        empty=lambda: b"",
        truncate=lambda: data[: int(more)],
        append=lambda: data + rng.randbytes(rng.choice((1, 50))),
        flip=lambda: _flip(rng, data),
        garbage=lambda: rng.randbytes(rng.choice((1, 10, len(data) + 1))),
        json=lambda: _json(rng, data),
        outline=lambda: _outline(rng, data),
        model=lambda: _model(rng, data),
        table=lambda: _table(rng, data),
    )
    return edits[operation]()


def _flip(rng, data) -> bytes:
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 5, 50)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _changed(rng, tree):
    """A tree of JSON in which one value, of any depth, is another, or missing, or misnamed."""
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(tree)
    if not places or rng.random() < 0.03:
        return rng.choice(JSON_VALUES)
    node, key = rng.choice(places)
    how = rng.random()
    if how < 0.8:
        node[key] = rng.choice(JSON_VALUES)
    elif how < 0.9:
        del node[key]
    elif isinstance(node, dict):
        node[rng.choice(("x", "", "algorithm", "epoch", "overwrite", "\ud800"))] = node.pop(key)
    else:
        node.append(node[key])
    return tree


def _json(rng, data) -> bytes:
    if rng.random() < 0.03:
        return b"[" * 100_000
    try:
        tree = json.loads(data)
    except ValueError:
        return data[1:]
    for _ in range(rng.choice((1, 1, 2))):
        tree = _changed(rng, tree) if isinstance(tree, (dict, list)) else tree
    return json.dumps(tree).encode()


def _outline(rng, data) -> bytes:
    import numpy as np

    try:
        arrays = dict(np.load(io.BytesIO(data)))
        outline = json.loads(arrays["outline"].tobytes())
    except Exception:
        return data[1:]
    name = rng.choice(sorted(arrays))
    if name == "outline" or rng.random() < 0.6:
        outline = json.dumps(_changed(rng, outline)).encode()
        arrays["outline"] = np.frombuffer(outline, np.uint8)
    else:
        array = arrays[name]
        arrays[name] = rng.choice(
            (
                array.reshape(-1),
                array.astype(np.float16),
                array.astype(str),
                array[..., None],
                np.zeros(0),
                array.astype(np.int64),
                array.reshape(-1)[:1],
                np.array(3),
                array[:0],
            )
        )
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _model(rng, data) -> bytes:
    import torch

    try:
        content = torch.load(io.BytesIO(data), weights_only=True)
        architecture, weights = json.loads(content["architecture"]), content["weights"]
    except Exception:
        return data[1:]
    name = rng.choice(sorted(weights))
    how = rng.random()
    if how < 0.6:
        content["architecture"] = json.dumps(_changed(rng, architecture))
    elif how < 0.8:
        w = weights[name]
        others = w.reshape(-1), w.double(), w[None], w[..., :0], w.to(torch.int32), None, 3, "x"
        weights[name] = rng.choice(others)
    else:
        content[rng.choice(("weights", "architecture"))] = rng.choice(JSON_VALUES[:20])
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


def _table(rng, data) -> bytes:
    rows = [line.split("\t") for line in data.decode(errors="replace").split("\n")]
    for _ in range(rng.choice((1, 1, 3, 20))):
        row = rng.choice(rows)
        place = rng.randrange(len(row)) if row else 0
        how = rng.random()
        if how < 0.5 and row:
            row[place] = rng.choice(FRAMES if row is rows[0] and how < 0.4 else CELLS)
        elif how < 0.6 and row:
            del row[place]
        elif how < 0.7:
            row.insert(place, rng.choice(CELLS))
        elif how < 0.8:
            rows.insert(rng.randrange(len(rows) + 1), list(row))
        elif how < 0.9:
            rows.remove(row)
        else:
            row[:] = ["\t".join(row)] if rng.random() < 0.5 else ["\r".join(row)]
        if not rows:
            break
    return "\n".join("\t".join(row) for row in rows).encode()
