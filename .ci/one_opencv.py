"""Write an empty package opencv-python that depends on opencv-contrib-python, so that OpenCV is installed only once.

python3 .ci/one_opencv.py FOLDER

mmengine requires opencv-python, and lstr requires opencv-contrib-python, which includes it. If both are installed, they
overwrite each other's files, and 100 MB of libraries are installed twice. FOLDER gets the wheel and `one_opencv.txt`, a
constraint that makes pip choose it.
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

VERSION = "5.0.0.93+contrib"
METADATA = f"""Metadata-Version: 2.1
Name: opencv-python
Version: {VERSION}
Summary: Empty package: opencv-contrib-python provides the module cv2
Requires-Dist: opencv-contrib-python
"""
WHEEL = """Wheel-Version: 1.0
Generator: lstr
Root-Is-Purelib: true
Tag: py3-none-any
"""


def main() -> None:
    """Write both files."""
    folder, info = Path(sys.argv[1]), f"opencv_python-{VERSION}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    record = ""
    with zipfile.ZipFile(folder / f"opencv_python-{VERSION}-py3-none-any.whl", "w") as wheel:
        for name, text in (("METADATA", METADATA), ("WHEEL", WHEEL)):
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{info}/{name},sha256={digest},{len(text.encode())}\n"
            wheel.writestr(f"{info}/{name}", text)
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    (folder / "one_opencv.txt").write_text(f"opencv-python=={VERSION}\n")


if __name__ == "__main__":
    main()
