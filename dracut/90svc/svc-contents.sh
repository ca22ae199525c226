# shellcheck shell=sh
# Lists of what the initramfs needs beside the node's scripts, read by dracut's module and by the hook of
# initramfs-tools.
# shellcheck disable=SC2034

# The node's scripts, svc-<part>.sh.
svc_parts='node arguments interface http fetch trust dhcp'

# A node cannot install itself without these programs; one of the second list is enough.
svc_programs='ip tar gzip sed tr od cat chmod cp cut du head tail ls ln mkdir mktemp mount mv readlink rm
  rmdir sha256sum sleep sort stat sync touch umount uname wc chroot base64 grep'
svc_fetchers='curl wget'

# Included if the image has them: for unpacking, torrents, the TPM, disks, the BMC, the hardware, DHCP, and a
# person at the shell. A root that stays packed needs veritysetup, and one that is streamed nbdkit, nbd-client and
# losetup.
svc_optional='zstd xz bzip2 aria2c transmission-cli openssl tpm2 veritysetup nbdkit nbd-client
  blkid lsblk wipefs sfdisk fdisk parted partprobe sgdisk partx blockdev findfs losetup dd mkswap swapon
  swapoff mkfs mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4 tune2fs e2fsck resize2fs mkfs.xfs xfs_repair mkfs.vfat
  mkfs.fat mkfs.btrfs btrfs fsfreeze fsck fsck.ext2 fsck.ext3 fsck.ext4 fsck.xfs fsck.btrfs logsave
  mdadm cryptsetup lvm pvcreate vgcreate lvcreate vgchange dmsetup nvme udevadm modprobe
  dmidecode ipmitool dhclient dhcpcd udhcpc setsid hostname awk date df env expr find id kill more ping ps ss
  test tee uniq xargs basename dirname'

svc_files='/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem
  /etc/pki/tls/cert.pem /etc/ssl/openssl.cnf /etc/mke2fs.conf
  /usr/share/misc/enterprise-numbers.txt /usr/share/misc/enterprise-numbers
  /usr/share/ipmitool/enterprise-numbers.txt'

# Libraries that programs load by name: for a host name in svc.url, for tpm2 and for nbdkit.
svc_libraries='libnss_dns.so.* libnss_files.so.* libtss2-tcti-device.so.*
  nbdkit/plugins/nbdkit-curl-plugin.so nbdkit/filters/nbdkit-retry-filter.so'
# Prints what the image lacks to open a file system whose key the TPM holds; $1 is the package of
# initramfs-tools for it, '' with dracut.
svc_seal_lacks() {
  [ -x /usr/bin/systemd-cryptenroll ] || echo systemd-cryptenroll
  [ -n "$(ls /usr/lib/*/libtss2-esys.so.? /usr/lib64/libtss2-esys.so.? 2>/dev/null)" ] || echo tpm2-tools
  if [ -n "$1" ]; then
    [ -e /usr/share/initramfs-tools/hooks/cryptroot ] || echo "$1"
  else
    ls -d /usr/lib/dracut/modules.d/*tpm2-tss >/dev/null 2>&1 || echo 'tpm2-tss of dracut'
  fi
}

# Kernel modules. A directory stands for all modules below it in the kernel's tree.
svc_modules='af_packet virtio_pci virtio_net virtio_blk virtio_scsi ext4 xfs btrfs vfat nls_cp437 nls_iso8859-1
  nls_ascii nls_utf8 raid0 raid1 raid10 raid456 dm_mod dm_crypt xts ecb aes_generic aesni_intel aes_ce_blk sha256_generic
  algif_skcipher algif_hash loop overlay efivarfs tpm_tis tpm_crb ipmi_devintf ipmi_si ipmi_msghandler
  dm_verity squashfs erofs nbd lz4_decompress zstd_decompress'
svc_module_directories='drivers/net/ethernet drivers/net/phy drivers/net/mdio drivers/net/hyperv
  drivers/net/usb drivers/net/vmxnet3 drivers/char/ipmi'

# Prints the names of drivers in the kernel's directory $1 that did not come with the kernel (in updates/,
# extra/, weak-updates/, misc/ and so on). Display drivers and modules that need them are left out: they are
# large, and no installation needs them.
svc_added_modules() {
  added=$(cd "$1" 2>/dev/null &&
    find . -type d \( -path ./kernel -o -path ./build -o -path ./source \) -prune -o -name '*.ko*' -print |
    sed "s|^\.|$1|" | sort)
  # Drivers of PCI's display class.
  displays=' '
  for file in $added; do
    case $(modinfo -F alias "$file" 2>/dev/null) in
      *pci:*bc03sc*) displays="$displays$(svc_module_name "$file") " ;;
    esac
  done
  for file in $added; do
    needs=" $(svc_module_name "$file") $(modinfo -F depends "$file" 2>/dev/null | tr ',-' ' _') "
    for display in $displays; do
      case $needs in
        *" $display "*) continue 2 ;;
      esac
    done
    svc_module_name "$file"
    echo
  done
}

svc_module_name() {
  name=${1##*/}
  printf '%s' "${name%%.ko*}" | tr '-' _
}
