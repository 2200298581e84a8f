"""`make zip`: the package as one file, for `spark-submit --py-files`."""

import sys
from pathlib import Path

from tests.cluster.standalone import package_zip

if __name__ == "__main__":
    print(package_zip(Path(sys.argv[1])))
