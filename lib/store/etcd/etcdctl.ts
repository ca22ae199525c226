/** Builds a command line of etcdctl. `asRoot`: the command needs etcd's root user, if etcd has users. */
export type Etcdctl = (words: string, asRoot?: boolean) => string

/** The options taken from the ini: paths of files, '' or absent if unset. */
export interface EtcdctlSettings {
  readonly endpoints: readonly string[]
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly user?: string
}

/** Adds endpoints, authority and user, without which etcdctl would ask another etcd or be refused. */
export const etcdctlFor =
  ({ endpoints, ca = '', cert = '', key = '', user = '' }: EtcdctlSettings): Etcdctl =>
  (words, asRoot = false) =>
    [
      'etcdctl',
      `--endpoints=${endpoints.join(',')}`,
      ...Object.entries({ cacert: ca, cert, key }).flatMap(([name, file]) =>
        file === '' ? [] : [`--${name}=${file}`]
      ),
      ...(user === '' ? [] : [`--user ${asRoot ? 'root' : user}`]),
      words
    ].join(' ')
