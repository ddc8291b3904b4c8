-- A small form of Sylius: a prefix, foreign keys of Doctrine without ON UPDATE, links of two tables,
-- translations that belong to a translatable row, and a tree of taxons.
CREATE TABLE sylius_locale (id INT AUTO_INCREMENT PRIMARY KEY, code VARCHAR(12) NOT NULL UNIQUE, created_at DATETIME NOT NULL, updated_at DATETIME NULL);
CREATE TABLE sylius_currency (id INT AUTO_INCREMENT PRIMARY KEY, code VARCHAR(3) NOT NULL UNIQUE, created_at DATETIME NOT NULL, updated_at DATETIME NULL);
CREATE TABLE sylius_taxon (id INT AUTO_INCREMENT PRIMARY KEY, tree_root INT NULL, parent_id INT NULL, code VARCHAR(255) NOT NULL UNIQUE, tree_left INT NOT NULL, tree_right INT NOT NULL, tree_level INT NOT NULL, position INT NOT NULL, enabled TINYINT(1) NOT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_TAXON_ROOT FOREIGN KEY (tree_root) REFERENCES sylius_taxon (id) ON DELETE CASCADE, CONSTRAINT FK_TAXON_PARENT FOREIGN KEY (parent_id) REFERENCES sylius_taxon (id) ON DELETE CASCADE);
CREATE TABLE sylius_taxon_translation (id INT AUTO_INCREMENT PRIMARY KEY, translatable_id INT NOT NULL, name VARCHAR(255) NOT NULL, slug VARCHAR(255) NOT NULL, locale VARCHAR(255) NOT NULL,
  CONSTRAINT FK_TAXON_TRANSLATION FOREIGN KEY (translatable_id) REFERENCES sylius_taxon (id) ON DELETE CASCADE);
CREATE TABLE sylius_channel (id INT AUTO_INCREMENT PRIMARY KEY, default_locale_id INT NOT NULL, base_currency_id INT NOT NULL, menu_taxon_id INT NULL, code VARCHAR(255) NOT NULL UNIQUE, name VARCHAR(255) NOT NULL, enabled TINYINT(1) NOT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_CHANNEL_LOCALE FOREIGN KEY (default_locale_id) REFERENCES sylius_locale (id), CONSTRAINT FK_CHANNEL_CURRENCY FOREIGN KEY (base_currency_id) REFERENCES sylius_currency (id), CONSTRAINT FK_CHANNEL_MENU FOREIGN KEY (menu_taxon_id) REFERENCES sylius_taxon (id) ON DELETE SET NULL);
CREATE TABLE sylius_product (id INT AUTO_INCREMENT PRIMARY KEY, main_taxon_id INT NULL, code VARCHAR(255) NOT NULL UNIQUE, enabled TINYINT(1) NOT NULL, average_rating DOUBLE NOT NULL DEFAULT 0, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_PRODUCT_TAXON FOREIGN KEY (main_taxon_id) REFERENCES sylius_taxon (id) ON DELETE SET NULL);
CREATE TABLE sylius_product_translation (id INT AUTO_INCREMENT PRIMARY KEY, translatable_id INT NOT NULL, name VARCHAR(255) NOT NULL, slug VARCHAR(255) NOT NULL, description LONGTEXT NULL, locale VARCHAR(255) NOT NULL,
  CONSTRAINT FK_PRODUCT_TRANSLATION FOREIGN KEY (translatable_id) REFERENCES sylius_product (id) ON DELETE CASCADE);
CREATE TABLE sylius_product_taxon (id INT AUTO_INCREMENT PRIMARY KEY, product_id INT NOT NULL, taxon_id INT NOT NULL, position INT NOT NULL, UNIQUE KEY (product_id, taxon_id),
  CONSTRAINT FK_PT_PRODUCT FOREIGN KEY (product_id) REFERENCES sylius_product (id) ON DELETE CASCADE, CONSTRAINT FK_PT_TAXON FOREIGN KEY (taxon_id) REFERENCES sylius_taxon (id) ON DELETE CASCADE);
CREATE TABLE sylius_product_channels (product_id INT NOT NULL, channel_id INT NOT NULL, PRIMARY KEY (product_id, channel_id),
  CONSTRAINT FK_PC_PRODUCT FOREIGN KEY (product_id) REFERENCES sylius_product (id) ON DELETE CASCADE, CONSTRAINT FK_PC_CHANNEL FOREIGN KEY (channel_id) REFERENCES sylius_channel (id) ON DELETE CASCADE);
CREATE TABLE sylius_product_variant (id INT AUTO_INCREMENT PRIMARY KEY, product_id INT NOT NULL, code VARCHAR(255) NOT NULL UNIQUE, on_hold INT NOT NULL, on_hand INT NOT NULL, tracked TINYINT(1) NOT NULL, version INT NOT NULL DEFAULT 1, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_VARIANT_PRODUCT FOREIGN KEY (product_id) REFERENCES sylius_product (id) ON DELETE CASCADE);
CREATE TABLE sylius_channel_pricing (id INT AUTO_INCREMENT PRIMARY KEY, product_variant_id INT NOT NULL, price INT NULL, original_price INT NULL, channel_code VARCHAR(255) NOT NULL,
  CONSTRAINT FK_PRICING_VARIANT FOREIGN KEY (product_variant_id) REFERENCES sylius_product_variant (id) ON DELETE CASCADE);
CREATE TABLE sylius_product_image (id INT AUTO_INCREMENT PRIMARY KEY, owner_id INT NOT NULL, type VARCHAR(255) NULL, path VARCHAR(255) NOT NULL,
  CONSTRAINT FK_IMAGE_OWNER FOREIGN KEY (owner_id) REFERENCES sylius_product (id) ON DELETE CASCADE);
CREATE TABLE sylius_product_image_product_variants (image_id INT NOT NULL, variant_id INT NOT NULL, PRIMARY KEY (image_id, variant_id),
  CONSTRAINT FK_IPV_IMAGE FOREIGN KEY (image_id) REFERENCES sylius_product_image (id) ON DELETE CASCADE, CONSTRAINT FK_IPV_VARIANT FOREIGN KEY (variant_id) REFERENCES sylius_product_variant (id) ON DELETE CASCADE);
CREATE TABLE sylius_product_review (id INT AUTO_INCREMENT PRIMARY KEY, product_id INT NOT NULL, author_id INT NOT NULL, title VARCHAR(255) NULL, rating INT NOT NULL, status VARCHAR(255) NOT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_REVIEW_PRODUCT FOREIGN KEY (product_id) REFERENCES sylius_product (id) ON DELETE CASCADE);
CREATE TABLE sylius_customer (id INT AUTO_INCREMENT PRIMARY KEY, email VARCHAR(255) NOT NULL UNIQUE, first_name VARCHAR(255) NULL, created_at DATETIME NOT NULL, updated_at DATETIME NULL);
CREATE TABLE sylius_order (id INT AUTO_INCREMENT PRIMARY KEY, customer_id INT NULL, channel_id INT NULL, number VARCHAR(255) NULL UNIQUE, state VARCHAR(255) NOT NULL, total INT NOT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_ORDER_CUSTOMER FOREIGN KEY (customer_id) REFERENCES sylius_customer (id), CONSTRAINT FK_ORDER_CHANNEL FOREIGN KEY (channel_id) REFERENCES sylius_channel (id));
CREATE TABLE sylius_order_item (id INT AUTO_INCREMENT PRIMARY KEY, order_id INT NOT NULL, variant_id INT NOT NULL, quantity INT NOT NULL, unit_price INT NOT NULL, total INT NOT NULL,
  CONSTRAINT FK_ITEM_ORDER FOREIGN KEY (order_id) REFERENCES sylius_order (id) ON DELETE CASCADE, CONSTRAINT FK_ITEM_VARIANT FOREIGN KEY (variant_id) REFERENCES sylius_product_variant (id));
CREATE TABLE sylius_adjustment (id INT AUTO_INCREMENT PRIMARY KEY, order_id INT NULL, order_item_id INT NULL, type VARCHAR(255) NOT NULL, amount INT NOT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NULL,
  CONSTRAINT FK_ADJUSTMENT_ORDER FOREIGN KEY (order_id) REFERENCES sylius_order (id) ON DELETE CASCADE, CONSTRAINT FK_ADJUSTMENT_ITEM FOREIGN KEY (order_item_id) REFERENCES sylius_order_item (id) ON DELETE CASCADE);
CREATE TABLE messenger_messages (id BIGINT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT NOT NULL, queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT NULL);
CREATE TABLE sylius_migrations (version VARCHAR(191) NOT NULL PRIMARY KEY, executed_at DATETIME NULL);
