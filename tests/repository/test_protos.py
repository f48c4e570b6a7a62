"""The checked-in generated code is what the .proto files say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")


def test_generated_protobuf_code_matches_its_sources(tmp_path: Path) -> None:
    protos = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "protos").glob("*.proto"))]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *outputs, *protos]
    subprocess.run(command, check=True, cwd=ROOT)

    made = {p.name: p.read_text() for pattern in GENERATED for p in tmp_path.rglob(pattern)}
    kept = {p.name: p.read_text() for g in GENERATED for p in (ROOT / "protos").glob(g)}
    assert made
    assert made == kept
