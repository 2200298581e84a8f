from claimlib.live.batches import *  # noqa
