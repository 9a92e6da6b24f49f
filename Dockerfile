# What every node of a cluster runs: the pinned environment, and the jobs. docs/cluster.md says how to build it.
FROM python:3.11-slim-bookworm

# rsync: `ray up` copies files into the container with it; wget: KubeRay's probes; the others: OpenCV
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 rsync wget \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 ray

WORKDIR /build
COPY constraints.txt ./
# the CPU build, or with --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 the same version for CUDA
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"

COPY pyproject.toml README.md LICENSE ./
COPY saod_ray saod_ray
# ray[default] brings the dashboard, which takes jobs; the last two are how a head starts nodes on AWS and Google Cloud
RUN pip install --no-cache-dir -c constraints.txt '.[mmdet,ray]' 'ray[default]' boto3 google-api-python-client==2.202.0

USER ray
WORKDIR /home/ray
RUN mkdir .ray
COPY jobs jobs
# no cluster starts from this image without a token
ENV HOME=/home/ray RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 SAOD_WEIGHTS=/weights
CMD ["saod-ray", "doctor"]
