# Seals file systems of a disk layout to the node's TPM: a random key that it gives out while PCR 7 and 14 are as
# now (Secure Boot and its keys, shim's own ones). They survive a new kernel. The secret stays the recovery key.

# Needs the mounts of chroot_mount. The initramfs that is made after it opens the file system of /.
seal_disks() {
  if image_program update-initramfs; then
    seal_initramfs_tools || return 1
  else
    printf 'add_dracutmodules+=" systemd crypt tpm2-tss "\ninstall_items+=" /etc/crypttab "\n' |
      image_place /etc/dracut.conf.d/svc-seal.conf 644 || return 1
  fi
  while read -r seal_device seal_name; do
    if ! in_image systemd-cryptenroll --unlock-key-file=/dev/stdin --tpm2-device=auto --tpm2-pcrs=7+14 \
      "$seal_device" < "$_RUN/layout/seal-keys/$seal_name" >/dev/null; then
      complain "the key of $seal_name cannot be sealed to the TPM"
      return 1
    fi
    log "the key of $seal_name is sealed to the TPM of this node"
  done < "$_RUN/layout/seal"
  rm -rf "$_RUN/layout/seal-keys"
}

# Debian's initramfs asks for a passphrase for what is closed still. So a script of ours comes before: cryptsetup
# finds the TPM by systemd's plugin.
seal_initramfs_tools() {
  image_place /etc/initramfs-tools/hooks/svc-seal 755 <<'SVC_END_OF_HOOK' &&
#!/bin/sh
# Made by svcd: takes what cryptsetup needs to ask the TPM.
case ${1:-} in
  prereqs) exit 0 ;;
esac
. /usr/share/initramfs-tools/hook-functions
for file in /usr/lib/*/cryptsetup/libcryptsetup-token-systemd-tpm2.so /usr/lib/*/libtss2-esys.so.? \
  /usr/lib/*/libtss2-mu.so.? /usr/lib/*/libtss2-rc.so.? /usr/lib/*/libtss2-tcti-device.so.?; do
  copy_exec "$file"
done
manual_add_modules tpm_tis tpm_crb
mkdir -p "$DESTDIR/etc/svc"
grep 'tpm2-device=auto' /etc/crypttab > "$DESTDIR/etc/svc/seal"
SVC_END_OF_HOOK
    image_place /etc/initramfs-tools/scripts/local-top/svc-seal 755 <<'SVC_END_OF_SCRIPT'
#!/bin/sh
# Made by svcd: opens the file systems whose key the TPM holds. What it cannot open, the next script asks for.
case ${1:-} in
  prereqs) exit 0 ;;
esac
modprobe -q tpm_tis
modprobe -q tpm_crb
modprobe -q dm_crypt
while read -r name source _ options; do
  case $options in
    *x-initrd.attach*) ;;
    *) continue ;;
  esac
  device=/dev/disk/by-uuid/${source#UUID=}
  for try in 1 2 3 4 5 6 7 8 9 10; do
    [ ! -e "$device" ] || break
    sleep 1
  done
  cryptsetup open --token-only --token-type systemd-tpm2 "$device" "$name" ||
    echo "svc: the TPM does not open $name: another machine, or Secure Boot has changed; type the recovery key"
done < /etc/svc/seal
exit 0
SVC_END_OF_SCRIPT
}
