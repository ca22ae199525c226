import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { output } from '../support/programs.js'
import { controlScript } from './namespaces.js'

/**
 * The control script of a real named in a namespace, which serves what svcd writes below this directory, at
 * 10.142.0.1.
 */
export async function bindIn(
  directory: string,
  namespace: string,
  options = 'recursion no;'
): Promise<string> {
  await output('rndc-confgen', ['-a', '-k', 'test', '-c', `${directory}/rndc.key`])
  writeFileSync(
    join(directory, 'named.conf'),
    `options { directory "${directory}"; listen-on { 10.142.0.1; }; listen-on-v6 { none; }; ${options}
  pid-file "${directory}/server.pid"; session-keyfile "${directory}/session.key"; };
include "${directory}/rndc.key";
controls { inet 127.0.0.1 port 953 allow { 127.0.0.1; } keys { "test"; }; };
include "${directory}/svcd.conf";
`
  )
  return controlScript(directory, {
    namespace,
    command: `named -g -c ${directory}/named.conf`,
    ready: 'running$',
    reload: `ip netns exec ${namespace} rndc -k ${directory}/rndc.key -s 127.0.0.1 reload`
  })
}
