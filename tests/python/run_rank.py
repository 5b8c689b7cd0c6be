"""One rank of run_script(): puts the fake library in place, then runs the script."""

import os
import runpy
import sys

from ranks import use_library

use_library()
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
