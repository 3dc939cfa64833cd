"""Runs a crash explorer by hand.

python -m tests.crash log --states 1000000 --jobs 2
python -m tests.crash state --seed 1
"""

import sys

from tests.crash.framework.explorer import main
from tests.crash.log.explorer import EXPLORER as LOG
from tests.crash.state.explorer import EXPLORER as STATE

if __name__ == "__main__":
    sys.exit(main({explorer.name: explorer for explorer in (LOG, STATE)}))
