import { expect, it } from 'vitest'
import { linkUp, specOf } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate } from '../helpers/fake-connector.ts'

it('brings 1,000 tunnels back after a restart and over a lost link', async () => {
  const { agent, connector, again } = await agentOnFake()
  await agent.start()
  await linkUp(agent)
  const names = Array.from({ length: 1_000 }, (_, n) => `t${n}`)
  await Promise.all(names.map((name) => agent.create(specOf(name))))
  await agent.stop()

  const next = again()
  await next.start()
  await eventually(() => expect(next.status().tunnels.online).toBe(1_000))
  const away = gate()
  connector.onConnect = away.wait
  connector.last.lose()
  await eventually(() => expect(next.status().tunnels.waiting).toBe(1_000))
  away.open()
  await eventually(() => expect(next.status().tunnels.online).toBe(1_000))
})
