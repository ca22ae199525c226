import { ProblemsError, problemText } from '../base/errors.js'
import { escapeControls } from '../base/log.js'

export const usage = `Usage: svcd COMMAND [OPTION]...

  serve                      run the daemon in the foreground
  helper                     do root's work on images for the daemon; started by systemd, or by serve
  check                      report every problem of ini, templates and state; exit 1 when there is one
  export                     print everything that is configured, from the running daemon
  import FILE [--yes]        replace the sections in FILE (- for standard input), in the running daemon; shows
                             what would change and asks first, with --yes it does not
  import --csv FILE [--yes]  create and change nodes by the lines of a table, in the running daemon; asks as
                             above
  import --luna2 FILE [--yes]
                             replace all objects by those of an export of luna2's daemon; asks as above
  import --warewulf|--xcat FILE [--yes]
                             replace networks, images, groups, nodes and BMC set-ups by those of nodes.conf
                             of Warewulf 4, or of what lsdef -z of xCAT printed; tells what has no
                             counterpart here, and asks as above
  backup FILE [--images]     one file (0600) with the state of one moment, the ini, changed templates and
                             keys, while svcd runs or not (- for standard output); with --images also the
                             packed files and the images
  restore FILE [--force]     put a backup in its place while svcd is stopped; with --force over another state,
                             which is kept aside
  store copy FROM TO         copy all objects from files to etcd, or from etcd to files, while svcd is
                             stopped, and compare them; refused where there are objects already
  log show                   print the changes in the log of the state, which may not be in its files yet, and
                             where the log is damaged; while svcd runs or not
  join HOST|/DIRECTORY       copy the keys of a controller whose objects are in etcd to this one, which is a
                             new one beside it, by ssh: [USER@]HOST[:/STATE-DIRECTORY], or from a directory
                             here with the files (svcd join /media/keys); refuses what does not fit
  osimage shell NAME         a shell in the directory of an image, for root on the controller: packages that
                             are installed in it find the network and start no service here; no pack of the
                             image begins meanwhile
  keys secureboot make|show|export DIRECTORY|sign FILE
                             the key of this site for Secure Boot: make it, show it, write what machines enrol
                             into a directory, sign a boot loader, a kernel or a UKI (FILE.signed)
  passwd USER [--role ROLE]  print the line for [users] of the ini; roles: admin (default), operator,
                             viewer, also limited to groups of nodes (operator:compute,gpu)
  ctl ...                    ask a controller over http: nodes, groups, power and so on; svcd ctl --help tells
                             how
  version, --version         print version, interface version and source commit

  --config FILE              the ini; default /etc/svcd/svcd.ini, in its absence etc/svcd.ini of this checkout
  --set SECTION.KEY=VALUE    replace a key of the ini, any number of times; a relative path is relative to the
                             ini's directory there too
  --images                   backup: the files and the directories of the images too; needs root
  --force                    restore: put the state that is there aside
  --stdin                    passwd: read the password from standard input instead of asking for it
  --help                     print this
`

/** The command line is wrong: exit 2, with the message and a pointer to --help. */
export class UsageError extends Error {}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there; stop it, or give svcd another port',
  EADDRNOTAVAIL: 'this machine does not have that address',
  EACCES: 'permission denied'
}

/** Formats an error as `file:line: message` lines or a sentence, never a stack trace; escapes controls. */
export function failureLines(error: unknown): string[] {
  return linesOf(error).map(escapeControls)
}

function linesOf(error: unknown): string[] {
  if (!(error instanceof Error)) return [`svcd: ${String(error)}`]
  if (error instanceof ProblemsError) return error.problems.map(problemText)
  return [`svcd: ${sentence(error).replace(/\s*\n\s*/g, '; ')}`]
}

/** `key`: the key of the ini for the listening address. */
function sentence(error: NodeJS.ErrnoException & { address?: string; port?: number; key?: string }): string {
  const reason = reasons[error.code ?? '']
  if (error.syscall !== 'listen' || !reason) return error.message || error.name
  const { key = '[http] listen', address = '', port = '' } = error
  const wayOut =
    error.code === 'EADDRINUSE' ? ` (${key} in the ini, or --set ${key.replace(/^\[(\w+)\] /, '$1.')}=…)` : ''
  return `cannot listen on ${key}, ${address} port ${port}: ${reason}${wayOut}`
}
