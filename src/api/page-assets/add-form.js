import { ask } from './api.js'
import { openForm, selectField, textField } from './dialog.js'
import { element } from './element.js'

/** Asks for a tunnel and makes it; resolves with it, or undefined. */
export function openAddForm() {
  const policy = element('textarea', {
    id: 'field-policy',
    name: 'policy',
    rows: '6',
    spellcheck: 'false',
    autocapitalize: 'none',
    'aria-describedby': 'hint-policy',
  })
  return openForm({
    title: 'Add a tunnel',
    action: 'Add tunnel',
    fields: [
      textField({
        name: 'forwards_to',
        label: 'Service on this device',
        placeholder: '8001',
        hint: 'Port of the service, or its address: host:port, https://host:port or unix:/path.',
      }),
      textField({
        name: 'domain',
        label: 'Public name (optional)',
        placeholder: 'cam.site.example.com',
        hint: 'Leave empty for a random name. Or a host name that the authtoken of this device allows; for TCP host:port.',
      }),
      selectField({
        name: 'protocol',
        label: 'Type',
        options: [
          ['http', 'Web pages and APIs (HTTP)'],
          ['tcp', 'TCP connections, such as SSH'],
        ],
      }),
      element(
        'details',
        { class: 'field' },
        element('summary', {}, 'Traffic policy'),
        element('label', { for: 'field-policy', class: 'visually-hidden' }, 'Traffic policy'),
        policy,
        element(
          'p',
          { class: 'hint', id: 'hint-policy' },
          'JSON or YAML. Leave empty for the default policy of the device.',
        ),
      ),
    ],
    run: ({ protocol, domain, forwards_to, policy: text }) =>
      ask('POST', 'api/tunnels', {
        body: {
          protocol,
          forwards_to: forwards_to.trim(),
          ...(domain.trim() !== '' && { domain: domain.trim() }),
          ...(text.trim() !== '' && { policy: text }),
        },
      }),
  })
}
