from hypothesis import settings

# A first call may compile a kernel or wait for a busy machine: pytest's own timeout ends what hangs.
settings.register_profile("stateferry", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=25)
settings.load_profile("stateferry")
