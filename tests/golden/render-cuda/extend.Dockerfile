# What nothing else covers.
RUN echo "${HOME}" > /etc/acme
