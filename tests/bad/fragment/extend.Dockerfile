# syntax=docker/dockerfile:1
FROM debian:12
COPY . /src
RUN python3 -c "import torch; torch.zeros(1).cuda()"
RUN --network=host curl x
CMD ["bash"]
RNU id
