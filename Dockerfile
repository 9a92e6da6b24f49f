# The image of every node of a cluster: the pinned environment and the jobs. docs/cluster.md describes how to build it.
FROM python:3.11-slim-bookworm

# `ray up` needs rsync to copy files into the container, KubeRay's probes need wget, and OpenCV needs the libraries
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 rsync wget \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 ray

WORKDIR /build
COPY constraints.txt ./
# the CPU build; --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 selects the same version for CUDA
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"

COPY pyproject.toml README.md LICENSE ./
COPY saod_ray saod_ray
# ray[default] has the dashboard, which accepts jobs; with the last two packages a head starts nodes on AWS and Google Cloud
RUN pip install --no-cache-dir -c constraints.txt '.[mmdet,ray]' 'ray[default]' boto3 google-api-python-client==2.202.0

USER ray
WORKDIR /home/ray
RUN mkdir .ray
COPY jobs jobs
# a cluster of this image requires a token
ENV HOME=/home/ray RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 SAOD_WEIGHTS=/weights
CMD ["saod-ray", "doctor"]
