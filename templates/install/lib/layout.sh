# Variables are set for the functions of a pass (SC2034), which are called by name (SC2317, SC2329).
# shellcheck disable=SC2034,SC2317,SC2329
set -u
layout={{ layout | quote }}
programs={{ programs | join(' ') | quote }}
kernel={{ kernel | join(' ') | quote }}

# disk NAME COUNT LEAST TYPE MIN_MIB MAX_MIB BY_ID ORDER TABLE KEEP LABELS
# part NAME USE SIZE RAID GROUP FORMAT MOUNT OPTIONS LABEL SECRET KEEP
# volume GROUP NAME SIZE FORMAT MOUNT OPTIONS LABEL SECRET
layout() {
{%- for d in disks %}
  disk {{ d.name | quote }} {{ d.count }} {{ d.least }} {{ d.type | quote }} {{ d.min }} {{ d.max }} {{ d.by_id | quote }} {{ d.order }} {{ d.table }} {{ 'yes' if d.keep else 'no' }} {{ d.labels | join(' ') | quote }}
{%- for p in d.partitions %}
  part {{ p.name | quote }} {{ p.use | quote }} {{ p.size | quote }} {{ p.raid | quote }} {{ p.volumegroup | quote }} {{ p.format | quote }} {{ p.mount | quote }} {{ p.options | quote }} {{ p.label | quote }} {{ p.secret | quote }} {{ 'yes' if p.keep else 'no' }}
{%- endfor %}
{%- endfor %}
{%- for v in volumes %}
  volume {{ v.volumegroup | quote }} {{ v.name | quote }} {{ v.size | quote }} {{ v.format | quote }} {{ v.mount | quote }} {{ v.options | quote }} {{ v.label | quote }} {{ v.secret | quote }}
{%- endfor %}
}

{% include 'install/lib/layout_disks.sh' %}
