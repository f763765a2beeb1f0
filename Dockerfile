# Two stages: compile the Debian packages, then install them into an image without a compiler.
#   docker build -t trainhost .
#   docker run --rm trainhost plan --model=llama-3-8b --device=h100-80gb
#   docker run --rm -v "$PWD:/home/trainhost" trainhost train --steps 10
# BASE is Debian 12 or newer, or Ubuntu 24.04 or newer. Tested without Docker by tests/tools/dockerfile_test.py.
ARG BASE=debian:12-slim

FROM ${BASE} AS build
COPY . /src
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends $(tools/dev packages)
RUN tools/dev deb

FROM ${BASE}
COPY --from=build /src/build-deb/packages/trainhost_*.deb /src/build-deb/packages/trainhost-plugins_*.deb /packages/
RUN apt-get update && apt-get install -y --no-install-recommends /packages/*.deb \
  && rm -rf /packages /var/lib/apt/lists/*
RUN useradd --create-home trainhost
USER trainhost
WORKDIR /home/trainhost
ENTRYPOINT ["trainhost"]
CMD ["--help"]
