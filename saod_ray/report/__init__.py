"""Reports: tables, charts, pictures and one HTML page.

The package is also a function: `saod_ray.report(store)` calls `saod_ray.api.report(store)`.
"""

from saod_ray.callable_package import make_callable

make_callable(__name__)
