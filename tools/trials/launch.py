"""Launch ranks with an installed wheel, without any extra."""

import numpy as np
import ripieno as rp


def program(comm: rp.Communicator) -> float:
    return float(comm.allreduce(np.ones(3))[0])


if __name__ == "__main__":
    with rp.launch(workers=2) as job:
        assert job.run(program) == [2.0, 2.0]
    try:
        import ripieno.report
    except rp.MissingExtra as error:
        print(error)
