import { serviceProblem } from '../../src/agent/service-error.ts'
import { Secret } from '../../src/base/secret.ts'
import { FakeConnector, refusal } from '../helpers/fake-connector.ts'
import { describeConnector } from './connector-contract.ts'

describeConnector('the fake', async () => {
  const authtoken = new Secret('good')
  const connector = new FakeConnector()
  connector.onConnect = (request) => {
    if (request.authtoken.reveal() !== 'good') throw refusal(107)
  }
  connector.onOpen = ({ domain }) => {
    if (connector.online.includes(domain)) throw refusal(334)
  }
  return {
    connector,
    authtoken,
    serverAddr: undefined,
    caCert: undefined,
    domains: ['a.site.test', 'b.site.test'],
    online: () => connector.online,
    cut: () => {
      for (const session of connector.sessions) if (!session.isClosed) session.lose()
    },
    command: async (command) => {
      for (const session of connector.sessions) session.command(command)
    },
    drop: (domain) => {
      for (const session of connector.sessions) {
        session.drop(domain, serviceProblem('credential revoked', 'ERR_NGROK_300'))
      }
    },
  }
})
