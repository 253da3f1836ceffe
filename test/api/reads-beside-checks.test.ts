import { readdirSync, readFileSync } from 'node:fs'
import { expect, it, onTestFinished } from 'vitest'
import { startApi } from './started-api.ts'

const DOMAIN = 'device1.site.test'
const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: DOMAIN }
const YAML = 'on_http_request:\n  - actions:\n      - type: deny\n'

/** The processes of this one that check policies. */
function policyProcesses(): number[] {
  const tasks = `/proc/${process.pid}/task`
  return readdirSync(tasks)
    .flatMap((task) => readFileSync(`${tasks}/${task}/children`, 'utf8').trim().split(' '))
    .filter((pid) => pid !== '')
    .filter((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('policy-process'))
    .map(Number)
}

it('answers reads while a policy is being checked', async () => {
  const { call } = await startApi()
  const made = await call('POST', '/tunnels', { ...SPEC, policy: YAML })
  expect(made.status).toBe(200)
  // Other test files of this worker may have left theirs.
  const checking = policyProcesses()
  expect(checking).not.toEqual([])
  for (const pid of checking) process.kill(pid, 'SIGSTOP')
  const goOn = () => {
    const alive = policyProcesses()
    for (const pid of checking) if (alive.includes(pid)) process.kill(pid, 'SIGCONT')
  }
  onTestFinished(goOn)

  let isChecked = false
  const policies = [`${YAML}# 1`, { on_http_request: [] }]
  const waiting = policies.map((policy) =>
    call('PUT', `/tunnels/${DOMAIN}`, { ...SPEC, policy }).finally(() => {
      isChecked = true
    }),
  )
  for (const path of [
    '/status',
    '/tunnels',
    '/tunnels?view=spec',
    `/tunnels/${DOMAIN}`,
    '/readyz',
  ]) {
    expect([path, (await call('GET', path)).status]).toEqual([path, 200])
  }
  expect(isChecked).toBe(false)

  goOn()
  const answers = await Promise.all(waiting)
  expect(answers.map(({ status }) => status)).toEqual([200, 200])
})
