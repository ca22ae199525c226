/** The command by which an admin asks etcd. `asRoot`: it is for root of etcd alone, where etcd has users. */
export type Etcdctl = (words: string, asRoot?: boolean) => string

/** What the command needs of the ini: paths of files, '' or undefined for what is not given. */
interface Reached {
  readonly endpoints: readonly string[]
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly user?: string | undefined
}

/** Makes commands that work for the etcd that is in use: without its endpoints, its authority and a user, etcdctl asks another one, or is refused. */
export const etcdctlFor =
  ({ endpoints, ca = '', cert = '', key = '', user = '' }: Reached): Etcdctl =>
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
