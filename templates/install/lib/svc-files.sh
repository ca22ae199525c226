#!/bin/sh
# shellcheck disable=SC2317 # it does not use all functions
{% include 'install/lib/http.sh' %}
{% include 'install/lib/settings.sh' %}
{% include 'install/lib/svc_files_program.sh' -%}
