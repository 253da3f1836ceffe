import { expect, it } from 'vitest'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'

it('counts endpoints of the account at other gateways, but for one that is about to move here', async () => {
  const { quotas, issuer } = openGatewayStores()
  const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
  const away = (host: string, owner: string) =>
    ({ protocol: 'https', host, ownerId: owner }) as const
  quotas.countOnline({
    here: () => ({ endpoints: 9_998, policyBytes: 0 }),
    elsewhere: () => [away('cam.test', ownerId), away('door.test', ownerId), away('x.test', 'b')],
  })
  expect(quotas.usageOf(ownerId).online_endpoints).toBe(10_000)
  const bind = (host: string) => () => quotas.checkBind(ownerId, { protocol: 'https', host }, null)
  expect(bind('cam.test')).not.toThrow()
  expect(bind('new.test')).toThrow('quota of online endpoints')
})
