# Short names for what ./dev does. `./dev help` says more.
.PHONY: help test run lease-race lease-race-log

help:
	@./dev help

test:
	@./dev test

run:
	@./dev run

# A worker stalls past its lease, another reclaims the job, the first comes back. RUNS=10000 holds so many races.
lease-race:
	@./dev drill lease-race $(if $(RUNS),--runs $(RUNS))

# The same as lines of JSON.
lease-race-log:
	@./dev drill lease-race --log $(if $(RUNS),--runs $(RUNS))
