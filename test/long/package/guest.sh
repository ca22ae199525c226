#!/bin/sh
# What the machines of ../package.test.ts do at each boot, as one of its units: the next phase, whose findings
# it writes to the console as lines "PROOF <name> <value>". The packages lie in /root/packages: old.deb and
# new.deb. The tree of an image for nodes is /root/image.
exec >/dev/console 2>&1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
url=http://127.0.0.1:7050
phase=$(cat /root/phase)

proof() {
  name=$1
  shift
  # One line, whatever it is, and not behind a login prompt.
  printf '\nPROOF %s %s\n' "$name" "$(printf %s "$*" | tr '\n' ' ')"
}
# Waits ten minutes at most: the machine is emulated.
until_true() {
  for _ in $(seq 1200); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.5
  done
  return 1
}
answers() { curl -sSf -m 10 "$url/version"; }
pid() { systemctl show -P MainPID svcd.service; }
token() {
  curl -sS -d "{\"username\":\"admin\",\"password\":\"$(cat /var/lib/svcd/admin-password)\"}" "$url/token" |
    sed 's/.*"token":"\([^"]*\)".*/\1/'
}
ask() {
  path=$1
  shift
  curl -sS -m 7200 -w ' %{http_code}' -H "x-access-tokens: $(token)" "$@" "$url$path"
}
# What the node has asked for, in order.
steps() { ask /monitor/node/node001/_boots | grep -oE '"step":"[a-z-]*"' | cut -d '"' -f 4 | uniq; }
runs() { steps | grep -qx running; }
files() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log -o -path /var/cache -o -path /root -o -path /var/tmp -o -path /var/lib/apt \) -prune -o -print | sort; }

case $phase in
  install)
    files >/root/before
    apt-get install -y /root/packages/old.deb && proof installed "$(dpkg-query -W -f '${Version} ${db:Status-Status}' svcd)"
    until_true answers
    proof node "$(command -v node || echo none)"
    proof active "$(systemctl is-active svcd.service svcd-helper.socket)"
    proof enabled "$(systemctl is-enabled svcd.service svcd-helper.socket)"
    proof verify "$(systemd-analyze verify svcd.service svcd-helper.service svcd-helper.socket 2>&1)"
    proof security "$(systemd-analyze security --no-pager svcd.service | tail -n 1)"
    proof answer "$(answers)"
    proof user "$(ps -o user= -p "$(pid)")"
    proof capabilities "$(grep CapEff "/proc/$(pid)/status")"
    proof stopped-in "$(before=$(date +%s%N); systemctl stop svcd; echo $((($(date +%s%N) - before) / 1000000)) ms)"
    proof start-status "$(systemctl start svcd; echo $?)"
    proof network "$(ask /config/network/cluster -d '{"config":{"network":{"cluster":{"network":"10.141.0.0/16"}}}}')"
    # Root's work: of the socket, under the sandbox of the helper.
    mkdir -p /var/lib/svcd/images/tiny/etc
    echo tiny >/var/lib/svcd/images/tiny/etc/hostname
    chown 1234:1234 /var/lib/svcd/images/tiny/etc/hostname
    proof image "$(ask /config/osimage/tiny -d '{"config":{"osimage":{"tiny":{"distribution":"debian","path":"/var/lib/svcd/images/tiny"}}}}')"
    proof pack "$(ask /config/osimage/tiny/_pack)"
    proof clone "$(ask /config/osimage/tiny/_clone -d '{"config":{"osimage":{"tiny":{"newosimage":"copy"}}}}')"
    proof helper "$(systemctl is-active svcd-helper.service) $(systemctl is-failed svcd-helper.service)"
    # svcd finishes what is under way before its helper ends.
    systemctl restart svcd
    until_true answers
    proof order "$(journalctl -u svcd -u svcd-helper -o cat --no-pager | grep -oE '^(Stopped svcd.service|Stopping svcd-helper.service)' | tail -n 2)"
    before=$(pid)
    kill -9 "$before"
    sleep 1
    until_true answers
    proof restarted "$(test "$(pid)" != "$before" && systemctl is-active svcd.service)"
    proof kept "$(ask /config/network/cluster)"
    # The server of DHCP and DNS: its files, and its reload by the helper.
    sed -i 's/^server = none/server = dnsmasq/; s/^listen = .*/listen = 0.0.0.0:7050/; s/^address =$/address = 10.141.0.1/' /etc/svcd/svcd.ini
    echo '# edited' >>/etc/svcd/svcd.ini
    proof check "$(svcd check 2>&1)"
    systemctl restart svcd
    until_true answers
    until_true test -s /etc/dnsmasq.d/svcd-dhcp.conf
    until_true test -s /etc/dnsmasq.d/svcd-dns.conf
    sleep 8
    proof dnsmasq-files "$(ls -l /etc/dnsmasq.d/svcd-*.conf)"
    proof dhcp "$(ask /service/dhcp/status)"
    proof health "$(ask /monitor/status)"
    proof journal "$(journalctl -u svcd -u svcd-helper -p warning -o cat --no-pager | tail -n 20)"
    journalctl -u svcd -u svcd-helper -u dnsmasq -o short --no-pager | tail -n 60
    echo serve >/root/phase
    proof "done" install
    systemctl reboot
    ;;
  serve)
    until_true answers
    proof rebooted "$(systemctl is-active svcd.service svcd-helper.socket)"
    proof survived "$(ask /config/network/cluster)"
    # The network of the node. iPXE waits for router advertisements.
    card=$(basename "$(dirname "$(grep -l 52:54:00:14:0b:01 /sys/class/net/*/address)")")
    ip address add 10.141.0.1/16 dev "$card"
    ip address add fd00:141::1/64 dev "$card" nodad
    ip link set "$card" up
    printf 'enable-ra\ndhcp-range=fd00:141::,ra-only\n' >/etc/dnsmasq.d/advertise.conf
    systemctl restart dnsmasq
    # The image as docs/getting-started.md has it, packed by svcd.
    mv /root/image /var/lib/svcd/images/debian
    proof osimage "$(ask /config/osimage/debian -d '{"config":{"osimage":{"debian":{"distribution":"debian","path":"/var/lib/svcd/images/debian","kerneloptions":"console=ttyS0 panic=-1 no_timer_check"}}}}')"
    proof packed "$(ask /config/osimage/debian/_pack)"
    proof dhcp-range "$(ask /config/network/cluster -d '{"dhcp":true,"dhcp_range_begin":"10.141.200.0","dhcp_range_end":"10.141.200.99"}')"
    proof group "$(ask /config/group/compute -d '{"config":{"group":{"compute":{"osimage":"debian","provision_method":"http","interfaces":[{"interface":"BOOTIF","network":"cluster"}]}}}}')"
    proof node "$(ask /config/node/node001 -d '{"config":{"node":{"node001":{"group":"compute","macaddr":"52:54:00:14:0b:02","interfaces":[{"interface":"BOOTIF","network":"cluster","ipaddress":"10.141.0.11"}]}}}}')"
    # dnsmasq has the node.
    until_true grep -r 52:54:00:14:0b:02 /var/lib/misc/svcd-dhcp
    sleep 8
    proof serving "$(ask /service/dhcp/status)"
    proof ready "$phase"
    # The system that the node has installed asks this when it is up. Two machines are emulated now.
    until_true runs || until_true runs || until_true runs
    proof state "$(ask /monitor/node/node001 | grep -oE '"state":"[^"]*"' | head -n 1)"
    proof steps "$(steps)"
    proof why "$(ask /monitor/node/node001/_why)"
    proof runs "$(ask /config/node/node001 | grep -oE '"_running":\{[^}]*\}')"
    proof lent "$(journalctl -u dnsmasq -o cat --no-pager | grep -oE 'DHCPACK.* 10.141.0.11 52:54:00:14:0b:02' | tail -n 1)"
    rm /etc/dnsmasq.d/advertise.conf
    echo upgrade >/root/phase
    proof "done" serve
    systemctl reboot
    ;;
  upgrade)
    until_true answers
    proof rebooted "$(systemctl is-active svcd.service svcd-helper.socket)"
    before=$(pid)
    apt-get install -y -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold /root/packages/new.deb
    proof upgraded "$(dpkg-query -W -f '${Version} ${db:Status-Status}' svcd)"
    until_true answers
    proof renewed "$(test "$(pid)" != "$before" && systemctl is-active svcd.service)"
    proof edited "$(tail -n 1 /etc/svcd/svcd.ini)"
    proof state "$(ask /config/network/cluster)"
    apt-get remove -y svcd
    proof removed "$(systemctl is-active svcd.service svcd-helper.socket) $(ls -d /etc/svcd/svcd.ini /var/lib/svcd/network)"
    apt-get install -y /root/packages/new.deb
    until_true answers
    proof again "$(ask /config/network/cluster)"
    apt-get purge -y svcd
    proof purged "$(getent passwd svcd svcd-ssh; getent group svcd svcd-ssh svcd-images; ls -d /run/svcd 2>/dev/null)"
    files >/root/after
    proof left "$(diff /root/before /root/after | grep '^>')"
    proof gone "$(diff /root/before /root/after | grep '^<')"
    echo nothing >/root/phase
    proof "done" upgrade
    systemctl poweroff
    ;;
esac
