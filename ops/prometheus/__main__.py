"""``python -m ops.prometheus``: write the rules of Prometheus and of Grafana anew."""

from __future__ import annotations

from ops.prometheus.render import files

if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
