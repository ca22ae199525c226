# shellcheck shell=sh disable=SC2034,SC2154 # variables of svc-arguments.sh and svc-http.sh
# Trust (rules 15.8, 15.9): the machine shows by a quote of its TPM what it booted, and svcd gives it the
# install script encrypted to that TPM. No key is stored in the TPM: both are made from fixed templates, so
# they are the same at each boot. All files are in memory, where only root can read them.

tpm_used=''
# Not empty: the install script was decrypted, and no other one is asked for.
trust_script=''

# Makes this machine the node that a person chose in the menu of GRUB, as a choice in iPXE's menu does.
choose_node() {
  if [ "$SVC_MANUAL" != 1 ]; then
    return 0
  fi
  prepare_requests && http_get "/boot/manual/hostname/$SVC_NODE/$SVC_MAC" "$_TMP/choice" || return 1
  # The answer is a boot script of iPXE. That of a refusal shows its reason to the person at the console.
  if ! grep -qF "svc.node=$SVC_NODE" "$_TMP/choice"; then
    complain "svcd does not make this machine $SVC_NODE: $(printable "$(sed -n 's/^echo svcd: //p' "$_TMP/choice")")"
    return 1
  fi
}

# With svc.trust=require the install script comes from here and nowhere else. With svc.trust=report a
# failure is shown, and the boot goes on.
prove_machine() {
  trust_script=''
  if [ -z "$SVC_TRUST" ]; then
    return 0
  fi
  _TRUST=$_TMP/trust
  rm -rf "$_TRUST"
  prepare_requests && (umask 077 && mkdir "$_TRUST") && find_tpm && tpm_keys && persist 8 attest_to_any
  prove_status=$?
  rm -rf "$_TRUST"
  case $SVC_TRUST:$prove_status in
    *:0) ;;
    report:*) log "warning: trust: $_REASON" ;;
    *) return 1 ;;
  esac
}

find_tpm() {
  for tpm_program in tpm2 openssl base64; do
    if ! program "$tpm_program"; then
      complain "this initramfs has no $tpm_program: install tpm2-tools and openssl in the image, and pack it"
      return 1
    fi
  done
  if program modprobe; then
    for tpm_driver in tpm_tis tpm_crb; do
      modprobe -q "$tpm_driver" 2> /dev/null
    done
  fi
  tpm_limit=$(($(uptime_seconds) + 10))
  while :; do
    # The first of these has a resource manager in the kernel.
    for tpm_device in /dev/tpmrm0 /dev/tpm0; do
      if [ -e "$tpm_device" ]; then
        export TPM2TOOLS_TCTI="device:$tpm_device"
        tpm_used=yes
        return 0
      fi
    done
    if [ "$(uptime_seconds)" -gt "$tpm_limit" ]; then
      complain "this machine has no TPM 2.0 that the kernel knows (no /dev/tpmrm0, no /dev/tpm0), and svc.trust=$SVC_TRUST asks for its word: turn the TPM on in the firmware's settings"
      return 1
    fi
    nap
  done
}

# Runs a tool of tpm2-tools without its output. Without a resource manager a TPM has room for three keys.
tpm() {
  tpm_said=$(tpm2 "$@" 2>&1)
  tpm_status=$?
  if [ "$tpm_device" = /dev/tpm0 ]; then
    tpm2 flushcontext -Q -t > /dev/null 2>&1
  fi
  if [ "$tpm_status" -ne 0 ]; then
    http_cause="tpm2 $1: $(printable "$tpm_said")"
    complain "$http_cause"
  fi
  return "$tpm_status"
}

# Makes the endorsement key by its default template, and a key that signs nothing but the TPM's own words.
# Without noda a TPM that lost its power too often while the key was used refuses it for hours.
tpm_keys() {
  tpm createek -Q -G rsa -c "$_TRUST/ek.context" -u "$_TRUST/ek" &&
    tpm createprimary -Q -C e -g sha256 -G ecc256:ecdsa-sha256:null -c "$_TRUST/ak.context" \
      -a 'restricted|sign|fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda' &&
    tpm readpublic -Q -c "$_TRUST/ak.context" -f tss -o "$_TRUST/ak" || return 1
  # Not every TPM has a certificate of its maker.
  tpm2 nvread -Q 0x01c00002 -o "$_TRUST/ek_certificate" > /dev/null 2>&1 || rm -f "$_TRUST/ek_certificate"
  if [ ! -e /sys/kernel/security/tpm0 ]; then
    mount -t securityfs securityfs /sys/kernel/security 2> /dev/null
  fi
  head -c 262145 /sys/kernel/security/tpm0/binary_bios_measurements > "$_TRUST/log" 2> /dev/null
  case $(wc -c < "$_TRUST/log") in
    0) complain 'the firmware left no event log of its TPM: is this a boot by UEFI?' ;;
    262145) complain 'the event log of the TPM has more than 256 KiB' ;;
    *) return 0 ;;
  esac
  return 1
}

# A controller's verdict stands; the next one is asked only where there is none.
attest_to_any() {
  ask_controllers attest '' && return 0
  attest_status=$?
  complain "$SVC_URL: $http_cause"
  return "$attest_status"
}

# Asks one controller. It ends with 1 without an answer, and with 2 where svcd or this machine refuses. A TPM
# that svcd sees for the first time shows that it has both keys, and then asks again.
attest() {
  attest_once || return
  if [ "$trust_verdict" = unknown ] && [ -s "$_TRUST/secret" ]; then
    send_proof || return
    attest_once || return
  fi
  log "trust: $trust_verdict${trust_reason:+: $trust_reason}"
  if [ "$SVC_TRUST" = report ]; then
    # Tokens in a script for an address are void once the node has to prove itself.
    if [ "$trust_verdict" = good ] && [ -s "$_TRUST/sealed" ] && ! open_script; then
      log "warning: trust: $http_cause"
    fi
    return 0
  fi
  http_cause="svcd does not give the install script: ${trust_reason:-its verdict is $trust_verdict}"
  if [ ! -s "$_TRUST/sealed" ]; then
    return 2
  fi
  open_script
}

attest_once() {
  rm -f "$_TRUST/secret" "$_TRUST/sealed" "$_TRUST/exchange"
  http_request "$SVC_URL/trust/$SVC_NODE/nonce" "$_TRUST/nonce" || return 1
  trust_nonce=''
  IFS= read -r trust_nonce < "$_TRUST/nonce"
  case ${#trust_nonce}:$trust_nonce in
    *:*[!0-9a-f]*) http_cause='its nonce is no number' && return 1 ;;
    64:*) ;;
    *) http_cause='its nonce does not have 64 digits' && return 1 ;;
  esac
  make_exchange || return 2
  trust_bound=$( (printf %s "$trust_nonce" && cat "$_TRUST/own.der") | sha256sum | cut -c 1-64)
  tpm quote -Q -c "$_TRUST/ak.context" -l sha256:0,1,2,3,4,5,6,7,8,9,14 -q "$trust_bound" \
    -m "$_TRUST/quote" -s "$_TRUST/signature" || return 2
  quote_body > "$_TRUST/body"
  http_request "$SVC_URL/trust/$SVC_NODE/quote" "$_TRUST/answer" "@$_TRUST/body" || return 1
  trust_verdict=$(answer_value verdict | tr -cd '[:alpha:]')
  trust_reason=$(answer_text reason "$_TRUST/answer")
  trust_salt=$(answer_value salt | tr -cd '0-9a-f')
  for trust_part in credential sealed exchange key signature; do
    answer_value "$trust_part" | base64 -d > "$_TRUST/$trust_part" 2> /dev/null
  done
  # A machine that svcd refuses gets nothing to decrypt.
  if [ -s "$_TRUST/credential" ]; then
    check_answer && open_credential || return 2
  else
    rm -f "$_TRUST/sealed"
  fi
}

# Makes the key that only this quote has. The TPM opens a credential in any boot, also in one of an attacker
# who recorded the answer: this key ends with the memory of this boot.
make_exchange() {
  if ! (umask 077 && openssl ecparam -name prime256v1 -genkey -noout > "$_TRUST/own.pem" 2> /dev/null) ||
    ! openssl pkey -in "$_TRUST/own.pem" -pubout -outform DER > "$_TRUST/own.der" 2> /dev/null; then
    http_cause='openssl makes no key of P-256'
    return 1
  fi
}

# Prints the report as JSON.
quote_body() {
  printf '{"nonce":"%s","exchange":"%s"' "$trust_nonce" "$(base64 < "$_TRUST/own.der" | tr -d '\n')"
  for quote_part in ek ak ek_certificate quote signature log; do
    if [ -s "$_TRUST/$quote_part" ]; then
      printf ',"%s":"' "$quote_part"
      base64 < "$_TRUST/$quote_part" | tr -d '\n'
      printf '"'
    fi
  done
  printf ',"firmware":{"vendor":"%s","product":"%s","bios_version":"%s"}}\n' "$(dmi_text sys_vendor)" \
    "$(dmi_text product_name)" "$(dmi_text bios_version)"
}

# Prints a text of the firmware that needs no quoting in JSON.
dmi_text() {
  tr -cd ' !#-[]-~' < "/sys/class/dmi/id/$1" 2> /dev/null | cut -c 1-100
}

# Prints a value of the answer that has no quotes, commas or braces in it. Text of others is quoted in JSON,
# so no piece of it begins with a quotation mark.
answer_value() {
  # shellcheck disable=SC2020 # three characters
  tr ',{}' '\n\n\n' < "$_TRUST/answer" | sed -n "s/^\"$1\":\"\([^\"\\\\]*\)\"\$/\1/p" | head -n 1
}

sum_of() {
  sha256sum < "$1" | cut -c 1-64
}

# Checks that the answer is by the svcd whose key is on the measured command line, and for this nonce and key.
check_answer() {
  openssl pkey -pubin -in "$_TRUST/key" -outform DER > "$_TRUST/key.der" 2> /dev/null
  if [ "$(sum_of "$_TRUST/key.der")" != "$SVC_KEY" ]; then
    http_cause='the answer is not by the svcd that made the kernel arguments: its key is not that of svc.key'
    return 1
  fi
  printf 'svcd-trust %s %s %s %s %s %s %s' "$SVC_NODE" "$trust_nonce" "$trust_salt" \
    "$(sum_of "$_TRUST/credential")" "$(sum_of "$_TRUST/sealed")" \
    "$(sum_of "$_TRUST/own.der")" "$(sum_of "$_TRUST/exchange")" > "$_TRUST/signed"
  if ! openssl dgst -sha256 -verify "$_TRUST/key" -signature "$_TRUST/signature" "$_TRUST/signed" \
    > /dev/null 2>&1; then
    http_cause="the signature of svcd's answer is not right"
    return 1
  fi
}

# Only the TPM with this endorsement key decrypts the secret, and only for this attestation key.
open_credential() {
  tpm startauthsession -Q --policy-session -S "$_TRUST/session" || return 1
  tpm policysecret -Q -S "$_TRUST/session" -c e &&
    (umask 077 && : > "$_TRUST/secret") &&
    tpm activatecredential -Q -c "$_TRUST/ak.context" -C "$_TRUST/ek.context" -i "$_TRUST/credential" \
      -o "$_TRUST/secret" -P "session:$_TRUST/session"
  open_status=$?
  tpm2 flushcontext -Q "$_TRUST/session" > /dev/null 2>&1
  return "$open_status"
}

secret_hex() {
  od -An -v -tx1 "$_TRUST/secret" | tr -d ' \n'
}

# OpenSSL takes keys only as arguments. No other user is in an initramfs, and a key is used once.
send_proof() {
  proof_mac=$(printf svcd-bound | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$(secret_hex)") || return 2
  printf '{"nonce":"%s","salt":"%s","proof":"%s"}\n' "$trust_nonce" "$trust_salt" "${proof_mac##* }" \
    > "$_TRUST/body"
  http_request "$SVC_URL/trust/$SVC_NODE/proof" "$_TRUST/answer" "@$_TRUST/body"
}

# Prints the key of the script: it takes what the TPM opened, and the key of this quote.
script_key() {
  openssl pkey -pubin -inform DER -in "$_TRUST/exchange" > "$_TRUST/peer.pem" 2> /dev/null &&
    (umask 077 && openssl pkeyutl -derive -inkey "$_TRUST/own.pem" -peerkey "$_TRUST/peer.pem" \
      > "$_TRUST/shared" 2> /dev/null) &&
    key_mac=$(openssl dgst -sha256 -mac HMAC -macopt "hexkey:$(secret_hex)" < "$_TRUST/shared") &&
    printf %s "${key_mac##* }"
}

open_script() {
  if ! (umask 077 && key=$(script_key) && openssl enc -d -aes-256-cbc -K "$key" -iv 00000000000000000000000000000000 \
    -in "$_TRUST/sealed" -out "$_TMP/install" 2> /dev/null); then
    rm -f "$_TMP/install"
    http_cause='the install script cannot be decrypted'
    return 2
  fi
  is_script || return 2
  trust_script=yes
}

# The SHA-256 of "svcd: the initramfs is over".
_OVER=074d53a792332390d2c50da7b9fdd1ec5c2ccf2a5a259edaf6f855cc74887ccc

# Ends what this boot can prove: the installed system, or who takes it over later, gets no good verdict from
# what the initramfs measured. With svc.trust=require nothing goes on without it.
end_proofs() {
  # A report may be of a machine without a TPM.
  case $SVC_TRUST:$tpm_used in
    :* | report:) return 0 ;;
  esac
  tpm pcrextend "9:sha256=$_OVER" && return 0
  if [ "$SVC_TRUST" = report ]; then
    log "warning: trust: what this boot can prove does not end with the initramfs: $_REASON"
    return 0
  fi
  log "trust: what this boot can prove cannot be ended, so the node does not start: $_REASON; reboot in 60 s"
  sleep 60
  restart_machine
}

# No program of an initramfs for this is certain, but the kernel's own way is. It does not come back.
restart_machine() {
  reboot -f 2> /dev/null
  while :; do
    echo b > /proc/sysrq-trigger
    sleep 5
  done
}
