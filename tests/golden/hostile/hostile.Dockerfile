# {{ image.id }} {% endraw %}
RUN echo "{{ x }}" '${HOME}' \
    && true
LABEL org.example="{% if %}"
