/** A nodes.conf of Warewulf 4.6, with profiles in profiles, a bond, a VLAN, and fields without a counterpart. */
export const warewulfToday = `nodeprofiles:
  default:
    comment: all nodes
    image name: rockylinux-9
    runtime overlay: [hosts]
    init: /sbin/init
    root: initramfs
    kernel:
      args: [quiet, crashkernel=no, root=/dev/sda1]
    ipmi: {username: admin, password: "never-shown", netmask: 255.255.255.0, write: "true"}
    network devices:
      default: {device: eno1, netmask: 255.255.252.0, gateway: 10.141.0.1, mtu: "9000"}
    resources:
      fstab: [{spec: "warewulf:/home", file: /home}]
  gpu:
    profiles: [default]
    kernel:
      args: [~quiet, nouveau.modeset=0]
    tags: {kind: gpu, my-tag: x}
  ring-a: {profiles: [ring-b], tags: {ring: a}}
  ring-b: {profiles: [ring-a], tags: {ring: b}}
  unused: {comment: nobody}
nodes:
  n1:
    profiles: [gpu]
    asset key: A1
    network devices:
      default: {hwaddr: "52:54:00:12:34:56", ipaddr: 10.141.0.11}
      ib: {type: infiniband, device: ib0, ipaddr: 10.149.0.11, netmask: 255.255.0.0}
    ipmi: {ipaddr: 10.148.0.11, tags: {vlan: "7"}}
  n2.cluster.local:
    profiles: [gpu]
    comment: "no"
    network devices:
      default: {hwaddr: 52-54-00-12-34-57, ipaddr: 10.141.0.12, tags: {DNS1: 1.1.1.1}}
      ib: {type: infiniband, device: ib0, ipaddr: 10.149.0.12, netmask: 255.255.0.0}
    ipmi: {ipaddr: 10.148.0.12}
    discoverable: true
    disks: {/dev/vda: {wipe_table: true}}
  n3:
    profiles: [default, ring-a]
    image name: other
    network devices:
      bond0: {type: Bond, device: bond0, ipaddr: 10.141.0.13, netmask: 255.255.252.0}
      default: {device: en1, hwaddr: "52:54:00:12:34:58", tags: {master: bond0}}
      en2: {device: en2, hwaddr: "52:54:00:12:34:59", tags: {master: bond0}}
      store: {type: vlan, device: v42, ipaddr: 10.142.0.13, netmask: 255.255.255.0, ipaddr6: "fd00::1",
              tags: {vlan_id: 42, parent_device: bond0}}
    primary network: bond0
  "ñandú": {}
`

/** The spellings of Warewulf 4.3 and 4.4, with CRLF and a byte order mark. */
export const warewulfBefore = `\ufeffWW_INTERNAL: 43
nodeprofiles:
  default:
    container name: centos
    kernel args: quiet
    ipmi username: root
    ipmi password: never-shown
    ipmi netmask: 255.255.255.0
    keys: {site: a}
nodes:
  w1:
    ipmi ipaddr: 10.148.0.21
    kernel args: loud
    kernel override: 5.14
    network devices:
      eth0: {default: "true", hwaddr: "52:54:00:12:35:01", ipcidr: 10.141.0.21/16}
      bond_member_1: {type: bond-slave, device: eth2}
      bond: {type: bond, device: bond0, ipaddr: 10.144.0.21, netmask: 255.255.255.0, tags: {mode: 802.3ad}}
      eth1.20: {type: vlan, ipaddr: 10.143.0.21, netmask: 255.255.255.0}
`.replaceAll('\n', '\r\n')

/** The output of \`lsdef -z\` of xCAT 2, with a default stanza. */
export const xcat = `# <xCAT data object stanza file>

cluster:
    objtype=network
    net=10.141.0.0
    mask=255.255.0.0
    gateway=<xcatmaster>
    nameservers=10.141.255.254
    dynamicrange=10.141.200.1-10.141.200.254
    mtu=1500

default-osimage:
    osvers=rhels8.4

rhels8.4-netboot-compute:
    objtype=osimage
    rootimgdir=/install/netboot/compute
    kernelver=4.18
    exlist=/opt/x

compute:
    objtype=group
    members=cn1,cn2
    ip=|cn(\\d+)|10.141.0.($1+0)|

cn1:
    objtype=node
    groups=all,compute,rack1
    ip=10.141.0.1
    mac=52:54:00:00:02:01!cn1|52:54:00:00:02:02
    bmc=10.148.0.1
    bmcusername=ADMIN
    bmcpassword=never-shown
    serialport=1
    serialflow=hard
    addkcmdline=R::quiet nouveau.modeset=0
    provmethod=rhels8.4-netboot-compute
    nictypes.ib0=Infiniband
    nicips.ib0=10.149.0.1|10.150.0.1
    nicnetworks.ib0=ib|other
    nichostnamesuffixes.ib0=-ib0
    nictypes.bond0=bond
    nicdevices.bond0=eth1|eth2
    nicextraparams.bond0="MTU=9000"
    switch=sw1
    switchport=7
    rack=r1
cn2:
    objtype=node
    groups=compute,all
    ip=10.141.0.2
    mac=52:54:00:00:02:03
    bmc=cn2-bmc
    provmethod=netboot
    usercomment=|cn(\\d+)|rack ($1)|
    installnic=eth0
    nicips.eth0=10.141.0.2

sw1:
    objtype=node
    nodetype=switch

1.0:
    objtype=policy
    rule=allow
`
