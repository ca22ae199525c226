import type { ApiRoute, Parts } from './context.js'

/** The cluster's settings and its controller (contract, Cluster); there is one controller, always primary. */
export function clusterRoutes({ config, model }: Parts): ApiRoute[] {
  return [
    {
      method: 'GET',
      path: '/config/cluster',
      effect: 'reads',
      access: 'user',
      body: 'ignored',
      codes: [200, 401, 503],
      summary: 'The cluster and its controllers',
      handler: () => ({
        status: 200,
        body: {
          config: {
            cluster: {
              name: config.cluster.name,
              [config.controller.name]: {
                status: 'primary',
                ipaddr: config.controller.address,
                serverport: config.http.listen.port,
                svc_config: config.file
              },
              ntp_server: config.cluster.ntp_server,
              debug: config.cluster.debug,
              technical_contacts: config.cluster.technical_contacts,
              provision_method: model.cluster.provision_method,
              provision_fallback: model.cluster.provision_fallback
            }
          }
        }
      })
    }
  ]
}
