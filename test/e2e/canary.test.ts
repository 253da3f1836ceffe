import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { listenAsServiceManager } from '../helpers/notify-socket.ts'
import { Site } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

// Well-formed, so that the service gets to see it: some of its refusals repeat the token.
const CANARY = '2mZ5hTqBvXc8Kd0WnR4yLsPfJ7A_3CanaryCanaryCanary99'

it('shows the authtoken in no log, file, answer, status line or variable', async () => {
  const folder = temporaryFolder()
  const notify = join(folder, 'notify')
  const told = listenAsServiceManager(notify)
  const site = await Site.start(folder)
  onTestFinished(() => site.stop())
  const variables = join(folder, 'variables.cjs')
  writeFileSync(
    variables,
    `process.on('SIGUSR2', () => require('fs').writeFileSync(${JSON.stringify(`${variables}.out`)}, JSON.stringify(process.env)))`,
  )
  await site.restartAgent('SIGTERM', {
    SVC_AUTHTOKEN: CANARY,
    SVC_AUTHTOKEN_FILE: '',
    AGENT_DOMAIN: 'agent.site.localhost',
    NOTIFY_SOCKET: notify,
    NODE_OPTIONS: `--require ${variables}`,
    LOG_LEVEL: 'trace',
  })
  const answers: string[] = []
  await eventually(async () => {
    answers.push(await (await site.call('GET', '/status')).text())
    expect(JSON.parse(answers.at(-1) ?? '').link.service_code).toMatch(/^ERR_NGROK_10[57]$/)
  })
  for (const path of ['/tunnels?view=status', '/readyz', '/healthz', '/openapi.json', '/nowhere']) {
    answers.push(await (await site.call('GET', path)).text())
  }
  answers.push(await (await site.create('device123.site.localhost', 9)).text())
  await eventually(() => expect(told.join()).toContain('READY=1'))
  site.agent.child.kill('SIGUSR2')
  const environment = await eventually(() => {
    const text = readFileSync(`${variables}.out`, 'utf8')
    expect(text).toContain('NOTIFY_SOCKET')
    return text
  })
  const { stderr, stdout } = await site.agent.end()
  const files = readdirSync(join(folder, 'agent')).map((name) =>
    readFileSync(join(folder, 'agent', name), 'latin1'),
  )

  expect(stderr).toContain('link down')
  const seen = { stderr, stdout, answers, told, environment, files, gateway: site.gateway.stderr }
  for (const [where, texts] of Object.entries(seen)) {
    expect([texts].flat().join('\n').includes(CANARY), where).toBe(false)
  }
})
