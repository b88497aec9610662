"""One build: scheduled, claimed by a worker, reported on, ended, answered from results."""
