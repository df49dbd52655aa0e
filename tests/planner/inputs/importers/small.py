"""Small logs, written by hand."""

from __future__ import annotations

import gzip
from pathlib import Path

GENTD26 = """\
gmt_create,predict_type,predict_status,exec_time_seconds,groupId,checkpoint_model_version_id,num_lora
2024-12-05 23:59:59,TXT_2_IMG,SUCCEED,30.0,G1,M0001,0
2024-12-06 00:00:00,TXT_2_IMG,SUCCEED,25.0,G1,M0006,0
2024-12-06 00:00:08,TXT_2_IMG,FAILED,14.0,G2,M0002,0
2024-12-06 00:00:08,TXT_2_IMG,SUCCEED,14.5,G2,M0002,1
2024-12-06 00:00:05,TXT_2_IMG,SUCCEED,25.0,G2,M0001,1
2024-12-06 00:00:30,TXT_2_IMG,PENDING,0.0,G3,,0
2024-12-06 00:01:00,TXT_2_IMG,SUCCEED,9.0,G3,M0002,0
"""
"""Seven requests, five of which succeeded; one row is out of order."""

UPDATES = "timestamp_anon,value,container_ip\n1.0,9000.0,a\n2.0,3000.0,b\n3.0,5000.0,a\n4.0,6000.0,a\n"
"""Four updates; their median is 5.5 s."""

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:17:03.9799600,4808,10\r
2023-11-16 18:17:04.0319606,100,1\r
2023-11-16 18:17:04.0319604,100,0"""
"""Windows line ends, none at the end, seven decimals."""


def written(folder: Path, text: str | bytes, name: str = "log.csv") -> Path:
    """Write a log; gzip if the name says so."""
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def table(*rows: str) -> str:
    """Return a log for the format ``table``."""
    return "\n".join(("release,model,runtime", *rows)) + "\n"
