"""`python -m saod_ray` is `saod-ray`."""

from saod_ray.cli import main

if __name__ == "__main__":
    main()
