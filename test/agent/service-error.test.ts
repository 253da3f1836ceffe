import { describe, expect, it } from 'vitest'
import { authtokenLack, withTokenPlace } from '../../src/agent/authtoken-source.ts'
import { hostedWords, type ShownProblem, withDeviceName } from '../../src/agent/problem.ts'
import { refusalAnswer, serviceProblem } from '../../src/agent/service-error.ts'

describe('serviceProblem', () => {
  it.each([
    [107, 'auth', true, 'service-refused', 422],
    [105, 'auth', true, 'service-refused', 422],
    [4018, 'auth', true, 'service-refused', 422],
    [300, 'auth', true, 'service-refused', 422],
    [316, 'acl', true, 'forbidden', 403],
    [319, 'acl', true, 'service-refused', 422],
    [320, 'acl', true, 'service-refused', 422],
    [326, 'acl', true, 'service-refused', 422],
    [334, 'conflict', false, 'domain-online-elsewhere', 409],
    [9026, 'policy', true, 'policy-invalid', 422],
    [108, 'limit', true, 'service-refused', 422],
    [351, 'limit', false, 'service-refused', 422],
    [803, 'network', false, 'service-refused', 422],
    [811, 'internal', true, 'service-refused', 422],
    [99_999, 'internal', true, 'service-refused', 422],
  ])('ERR_NGROK_%i is %s', (number, reason, permanent, code, status) => {
    const serviceCode = `ERR_NGROK_${number}`
    const problem = serviceProblem('the text', serviceCode)
    expect(problem).toMatchObject({ reason, permanent, serviceCode, detail: 'the text' })
    expect(problem.remedy).toMatch(/^[A-Z].*\.$/)
    const answer = refusalAnswer(problem)
    expect(answer).toMatchObject({ code, status, serviceCode })
    expect(answer.message).toBe(`the text. ${problem.remedy}`)
  })

  it('names the command that adds a rule for a TCP address that is safe in a shell', () => {
    const of = (host: string) => `The ACL rules of the authtoken cr_1 do not allow ${host}.`
    const remedyOf = (text: string) => serviceProblem(text, 'ERR_NGROK_316').remedy
    const invite = (host: string) =>
      `device-agent gateway invite --name cam01 --allow '${host}' on the`
    for (const host of ['gateway.example.com:20017', '[::1]:20017']) {
      const named = withDeviceName(remedyOf(of(host)), 'cam01')
      expect(named).toContain(invite(host))
      expect(named).not.toContain('NAME')
    }
    const any =
      'The authtoken has no ACL rule for a TCP address. The rule bind:127.0.0.1:* allows every address.'
    expect(withDeviceName(remedyOf(any), 'cam01')).toContain(invite('127.0.0.1:*'))
    const bare = remedyOf('')
    expect(remedyOf(of("x' ; reboot ':1"))).toBe(bare)
    expect(remedyOf(of('cam.other.test'))).toBe(bare)
    expect(hostedWords(remedyOf(of('tcp.ngrok.app:1')))).toBe(hostedWords(bare))
  })

  it('replaces an authtoken that may be valid, and names the rules that go with it', () => {
    const replace = 'device-agent gateway invite --name cam01 --replace on the gateway'
    const refused = (serviceCode: string) =>
      withTokenPlace<ShownProblem>({ serviceCode }, undefined).remedy ?? ''
    for (const remedy of [
      authtokenLack(undefined, undefined).remedy,
      authtokenLack('/run/authtoken', undefined).remedy,
      refused('ERR_NGROK_105'),
    ]) {
      expect(remedy).toContain('If the device has joined before, add --replace.')
      const named = withDeviceName(remedy, 'cam01')
      expect(named).toContain(replace)
      expect(named).toContain('repeat the --domain and each --allow of the earlier one.')
      expect(named).not.toMatch(/NAME|joined before/)
    }
    expect(hostedWords(refused('ERR_NGROK_105'))).not.toContain('--replace')
    const deleted = withDeviceName(refused('ERR_NGROK_107'), 'cam01')
    expect(deleted).toContain('invite --name cam01 on the gateway')
    expect(deleted).toContain('repeat the --domain and each --allow of the earlier one.')
  })

  it('sends nobody to update for an address that is not served', () => {
    const { remedy, permanent } = serviceProblem('not served', 'ERR_NGROK_301')
    expect([remedy, permanent]).toEqual([
      expect.stringMatching(/^Change the option or address/),
      true,
    ])
    const unserved =
      'The address h:1 is not served by this gateway. Its TCP addresses are h:20000 to h:20100.'
    expect(serviceProblem(unserved, 'ERR_NGROK_301').remedy).toBe('Use one of these TCP addresses.')
    expect(serviceProblem('too old', 'ERR_NGROK_811').remedy).toMatch(/^Update the agent/)
  })

  it('takes an error without a code for trouble on the way', () => {
    expect(serviceProblem('failed to open muxado stream', undefined)).toMatchObject({
      reason: 'network',
      permanent: false,
    })
  })
})
