import { join } from 'node:path'
import { expect, it } from 'vitest'
import { TUNNEL_MIGRATIONS, TunnelStore } from '../../../src/agent/tunnel-store.ts'
import { tunnelStatusView } from '../../../src/api/tunnel-view.ts'
import { openDatabase } from '../../../src/store/database.ts'
import { linkUp, specOf } from '../../helpers/agent-in-folder.ts'
import { agentOnGateway } from '../../helpers/agent-on-gateway.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

/** A rule that newer checks refuse: its URL has a scheme that requests cannot have. */
const OUTDATED = {
  on_http_request: [
    {
      expressions: ["req.url.path == '/old'"],
      actions: [{ type: 'http-request', config: { url: 'ftp://files.test/' } }],
    },
  ],
}

/** Replaces the policies of all stored tunnels, as an older version stored them. */
async function storePolicy(folder: string, policy: typeof OUTDATED): Promise<void> {
  const [path, { log }] = [join(folder, 'agent.db'), captureLog()]
  const clock = new ManualClock()
  const database = openDatabase({
    path,
    migrations: TUNNEL_MIGRATIONS,
    applicationId: 1,
    log,
    clock,
  })
  const store = new TunnelStore(database)
  for (const stored of store.load().tunnels) {
    const spec = { ...stored.spec, policy }
    store.update({ ...stored, spec })
  }
  database.close()
}

it('keeps a tunnel online whose stored policy newer checks refuse, and shows the warning', async () => {
  const on = await agentOnGateway()
  await on.agent.start()
  await linkUp(on.agent)
  await on.createTunnels('cam', 'door')
  await on.agent.stop()
  await storePolicy(on.folder, OUTDATED)

  const agent = on.another()
  await agent.start()
  await linkUp(agent)
  await eventually(() => {
    for (const tunnel of agent.list()) {
      const { state, condition, policy_warning: warning } = tunnelStatusView(tunnel, {})
      expect([state, condition]).toEqual(['online', 'working'])
      expect(warning).toContain('ftp://files.test/ is not an https: or http: URL')
    }
  })
  expect([await on.visit('cam'), await on.visit('door')]).toEqual(['hello', 'hello'])
  const { verdict, healthy, notes } = agent.status()
  expect(healthy).toBe(true)
  expect(verdict).toMatch(/^All 2 tunnels .*New checks refuse the policy of cam\.site\.test/)
  expect(notes.at(-1)?.problem).toContain('runs as before')

  // Such a policy is not accepted again.
  const spec = { ...specOf('new'), policy: OUTDATED }
  await expect(agent.create(spec)).rejects.toMatchObject({ code: 'policy-invalid' })
  // It does not prevent other changes of its tunnel.
  const { spec: cam } = agent.find('cam')
  const moved = { upstream: { timeout: 5 } }
  const changed = { ...cam, ...moved }
  await agent.replace('cam.site.test', changed)
  const { spec: door } = agent.find('door')
  await agent.replaceAll([changed, { ...door, ...moved }])
  expect(agent.find('door').spec).toMatchObject({ ...moved, policy: OUTDATED })
  const other = { ...OUTDATED, on_http_response: [] }
  const replaced = agent.replace('cam.site.test', { ...cam, policy: other })
  await expect(replaced).rejects.toMatchObject({ code: 'policy-invalid' })
  await agent.replace('cam.site.test', { ...cam, policy: null })
  await eventually(() => {
    const [warned] = agent.list().filter(({ status }) => status.policyWarning !== undefined)
    expect(warned?.spec.domain).toBe('door.site.test')
  })
  expect(agent.find('cam').status.policyWarning).toBeUndefined()
})
