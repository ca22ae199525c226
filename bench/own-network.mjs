// A network namespace in which every address of 100.64.0.0/10 is this machine: so machines ask from addresses
// that are not loopback's.

const SETUP = 'ip link set lo up && ip route add local 100.64.0.0/10 dev lo && exec "$0" "$@"'

/** The words before a program that is to run in one, and its environment. */
export const ownNetwork = {
  command: [
    'unshare',
    ...(process.getuid() === 0 ? [] : ['--user', '--map-root-user']),
    ...['--net', '--', 'sh', '-c', SETUP]
  ],
  env: { BENCH_OWN_NETWORK: 'yes' }
}
